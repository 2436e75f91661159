#include "bench/stream_clients.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace hocket {
namespace {

constexpr std::string_view kEnd =
    "\r\n0\r\n\r\n";  // only the last chunk looks so, since JSON text has no bare line ends
constexpr std::string_view kGood = "HTTP/1.1 200 ";

int64_t count(std::string_view text, std::string_view word) {
  int64_t n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

}  // namespace

struct StreamClients::State {
  struct Client {
    size_t group = 0;
    int fd = -1;
    bool asked = false;
    TimePoint since{};
    bool begun = false;  // the first byte has arrived
    std::string first;   // the first bytes, up to the status
    std::string tail;    // the last bytes, to find the end across reads
  };
  struct Group {
    std::string request;
    StreamResults seen;
  };
  int port = 0;
  int poll = -1;
  std::vector<Group> groups;
  std::vector<std::unique_ptr<Client>> clients;

  bool connect(Client& client);
  void ask(Client& client);
  void read(Client& client);
  void fail(Client& client);
  void take_bytes(Client& client, std::string_view bytes);
};

bool StreamClients::State::connect(Client& client) {
  if (client.fd >= 0) close(client.fd);
  client.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(client.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client.fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return false;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &client}};
  return epoll_ctl(poll, EPOLL_CTL_ADD, client.fd, &event) == 0;
}

// Sends the client's request. It fits into the socket's buffer, so sending does not block.
void StreamClients::State::ask(Client& client) {
  const std::string& request = groups[client.group].request;
  client.begun = false;
  client.first.clear();
  client.tail.clear();
  client.asked = send(client.fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                 static_cast<ssize_t>(request.size());
  client.since = RealClock().now();
}

void StreamClients::State::fail(Client& client) {
  ++groups[client.group].seen.num_failed;
  client.asked = false;
  if (connect(client)) ask(client);
}

void StreamClients::State::take_bytes(Client& client, std::string_view bytes) {
  StreamResults& seen = groups[client.group].seen;
  const TimePoint now = RealClock().now();
  if (!client.begun) {
    client.begun = true;
    seen.first_byte_ms.push_back(to_ms(now - client.since));
  }
  if (client.first.size() < kGood.size()) {
    client.first += bytes.substr(0, kGood.size() - client.first.size());
    if (!kGood.starts_with(client.first)) return fail(client);
  }
  client.tail += bytes;
  seen.num_events += count(bytes, "data: ");
  const bool ended = client.tail.ends_with(kEnd);
  if (client.tail.size() > kEnd.size()) client.tail.erase(0, client.tail.size() - kEnd.size());
  if (!ended) return;
  ++seen.num_done;
  seen.whole_ms.push_back(to_ms(now - client.since));
  ask(client);
}

void StreamClients::State::read(Client& client) {
  std::array<char, 16384> piece{};
  const ssize_t got = recv(client.fd, piece.data(), piece.size(), MSG_DONTWAIT);
  if (got > 0) return take_bytes(client, {piece.data(), static_cast<size_t>(got)});
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  fail(client);
}

StreamClients::StreamClients(int port) : state_(std::make_unique<State>()) {
  state_->port = port;
  state_->poll = epoll_create1(EPOLL_CLOEXEC);
}

StreamClients::~StreamClients() {
  for (const auto& client : state_->clients)
    if (client->fd >= 0) close(client->fd);
  close(state_->poll);
}

Result<size_t> StreamClients::add(const StreamRequest& ask) {
  const size_t group = state_->groups.size();
  state_->groups.push_back(
      {fmt::format("POST /generate HTTP/1.1\r\nHost: localhost\r\n"
                   "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                   ask.body.size(), ask.body),
       {}});
  for (int i = 0; i < ask.num_clients; ++i) {
    State::Client& client = *state_->clients.emplace_back(std::make_unique<State::Client>());
    client.group = group;
    if (!state_->connect(client))
      return hocket::fail(
          error(ErrorCode::io, "client {} cannot connect: errno {}", state_->clients.size(), errno)
              .with_fix("ulimit -n 65536, and --max-connections of the server"));
    state_->ask(client);
  }
  return group;
}

void StreamClients::run(double seconds) {
  const TimePoint end = RealClock().now() + from_seconds(seconds);
  std::array<epoll_event, 256> events{};
  for (TimePoint now = RealClock().now(); now < end; now = RealClock().now()) {
    const int ms = static_cast<int>(to_ms(end - now)) + 1;
    const int n = epoll_wait(state_->poll, events.data(), static_cast<int>(events.size()), ms);
    for (int i = 0; i < n; ++i)
      state_->read(*static_cast<State::Client*>(events[static_cast<size_t>(i)].data.ptr));
  }
}

StreamResults StreamClients::take(size_t group) {
  return std::exchange(state_->groups[group].seen, {});
}

int StreamClients::num_open(size_t group) const {
  int n = 0;
  for (const auto& client : state_->clients) n += client->group == group && client->asked ? 1 : 0;
  return n;
}

}  // namespace hocket
