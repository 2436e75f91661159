// Fuzzes the bytes of a client on a real socket: heads, targets, bodies, chunks, pipelines. Each
// answer is valid HTTP with a correct length, and the server serves the next client afterwards.
//
// The first byte chooses where the bytes are cut in two; the server may read between the parts.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/access/access_check.h"
#include "server/apis/apis.h"
#include "server/http/http.h"
#include "server/http/request_target.h"

using namespace hocket;

namespace {

void handle(HttpRequest&& request, const std::shared_ptr<HttpExchange>& exchange) {
  HOCKET_CHECK(request.path.starts_with('/'));
  HOCKET_CHECK(is_valid_utf8(request.path));
  HOCKET_CHECK(request.sender != nullptr);
  if (request.path == "/stream") {
    exchange->start_stream("text/event-stream");
    exchange->write("data: 1\n\n");
    exchange->write(request.body.substr(0, 1000));
    exchange->finish();
    return;
  }
  exchange->respond(200, "text/plain", request.body, {{"x-path", request.path}});
}

HttpServer& server() {
  static const std::unique_ptr<AccessCheck> check =
      *AccessCheck::create({.cors_origins = "https://a.example", .allowed_hosts = "*"});
  static const std::unique_ptr<HttpServer> one = [] {
    HttpOptions options;
    options.max_body_bytes = 64 << 10;
    options.max_header_bytes = 8 << 10;
    options.header_timeout = options.body_timeout = std::chrono::milliseconds(200);
    options.idle_timeout = std::chrono::milliseconds(200);
    options.error_format_of = error_format_of;
    options.admit = [](const HttpRequest& head) { return check->admit(head); };
    return *HttpServer::create(std::move(options), handle);
  }();
  return *one;
}

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const linger now{1, 0};  // close() resets the connection, so no port stays in TIME_WAIT
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(server().port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Returns false if the connection failed, as when this host had no port left.
  bool connected() const { return connected_; }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  // Waits up to `ms` for bytes and appends them to `text`. Returns false if none came.
  bool receive(std::string& text, int ms) {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, ms) <= 0) return false;
    std::array<char, 16384> piece{};
    const ssize_t n = recv(fd_, piece.data(), piece.size(), 0);
    if (n > 0) text.append(piece.data(), static_cast<size_t>(n));
    return n > 0;
  }

 private:
  int fd_;
  bool connected_ = false;
};

// Checks that the complete answers at the front of `text` are well formed.
void check_answers(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find("\r\n\r\n");
    if (end == text.npos) return;
    const std::string_view head = text.substr(0, end);
    HOCKET_CHECK(head.starts_with("HTTP/1.1 "));
    HOCKET_CHECK(std::ranges::none_of(
        head, [](unsigned char c) { return (c < 32 && c != '\r' && c != '\n') || c == 127; }));
    const size_t at = head.find("Content-Length: ");
    if (at == head.npos) return;  // a stream, or an answer without body
    size_t length = 0;
    std::from_chars(head.data() + at + 16, head.data() + head.size(), length);
    text.remove_prefix(end + 4);
    if (text.starts_with("HTTP/1.1 ")) continue;  // the answer to HEAD has no body
    if (text.size() < length) return;
    if (head.starts_with("HTTP/1.1 4")) HOCKET_CHECK(is_valid_utf8(text.substr(0, length)));
    text.remove_prefix(length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = bytes.size() * data[0] / 255;
  std::string text;
  {
    Socket socket;
    socket.send(bytes.substr(0, cut));
    if (data[0] % 8 == 1) socket.receive(text, 1);
    socket.send(bytes.substr(cut));
    while (socket.receive(text, 2)) {
    }
    check_answers(text);
  }
  static int turn = 0;
  if (++turn % 64 != 0) return 0;
  Socket next;
  if (!next.connected()) return 0;
  next.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
  std::string answer;
  HOCKET_CHECK(next.receive(answer, 5000));
  HOCKET_CHECK(answer.starts_with("HTTP/1.1 200 "));
  return 0;
}
