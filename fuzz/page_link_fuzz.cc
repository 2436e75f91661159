// Fuzzes what the two sides of a connection for pages (engine/pages/page_link.h) send each other. A
// server of pages and a client each talk to a stranger that knows the token and signs whatever the
// input says; a page is only ever taken with the bytes of its key.
//
//   input: a byte that chooses the side and one mode, then messages: u8 type | u16 length | payload
//   its highest bit: four bytes come before the messages, the size of the stranger's pages
//   mode: signed frames, or the bytes as they are after the handshake, or from the first on
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/pages/page_keys.h"
#include "engine/pages/page_server.h"
#include "engine/pages/peer_source.h"

using namespace hocket;

namespace {

constexpr size_t kFuzzedPage = 64;
constexpr size_t kMaxMessages = 16;
constexpr size_t kFuzzedPrompt = 256;  // tokens
enum class Spoken : uint8_t { frames, bytes, strange };

// Pages of one small layer.
std::shared_ptr<const PageForms> fuzzed_forms() {
  static const auto forms = std::make_shared<const PageForms>(
      PageForms::Parts{.pages = {.layers = {{.num_heads = 1, .key_dim = 32, .value_dim = 32}}}});
  return forms;
}

PageKey key_number(uint8_t number) {
  PageKey key{};
  key.fill(number);
  return key;
}

SocketAddress any_port() {
  return resolve({.host = "127.0.0.1", .port = 0})->front();
}

bool never() {
  return false;
}

Fd connect_to(const SocketAddress& address) {
  auto socket = start_dial(address);
  HOCKET_CHECK(socket.has_value());
  pollfd one{.fd = socket->get(), .events = POLLOUT, .revents = 0};
  HOCKET_CHECK(poll(&one, 1, 1000) == 1);
  return *std::move(socket);
}

// Sends what the input says until it ends or the other side leaves.
void speak(PageLink& link, int socket, Spoken spoken, std::span<const uint8_t> input) {
  for (size_t i = 0; i < kMaxMessages && input.size() >= 3; ++i) {
    const size_t length = std::min<size_t>(input[1] | (input[2] << 8), input.size() - 3);
    const std::string_view payload(reinterpret_cast<const char*>(input.data()) + 3, length);
    if (spoken == Spoken::frames) {
      if (!link.send(static_cast<PageFrame>(input[0]), payload)) return;
    } else if (::send(socket, payload.data(), payload.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      return;
    }
    input = input.subspan(3 + length);
  }
}

// Reads until the other side has ended the connection, so that no talk outlives its input.
void wait_for_end(int socket) {
  std::array<char, 256> bytes;
  pollfd one{.fd = socket, .events = POLLIN, .revents = 0};
  while (poll(&one, 1, -1) < 0 || recv(socket, bytes.data(), bytes.size(), 0) > 0) {
  }
}

// A server with the pages 1 and 2, which computes prompts for others.
struct FuzzedServer {
  FuzzedServer() {
    namespace fs = std::filesystem;
    const fs::path folder =
        fs::temp_directory_path() / fmt::format("hocket-page-link-fuzz-{}", getpid());
    auto opened = PageFiles::open(folder);
    HOCKET_CHECK(opened.has_value());
    const std::shared_ptr<PageFiles> files = *std::move(opened);
    const std::vector<std::byte> page(kFuzzedPage, std::byte{1});
    for (const uint8_t number : {1, 2})
      HOCKET_CHECK(files->write(key_number(number), page).has_value());
    auto prefills = std::make_shared<PrefillWatch>();
    auto made = PageServer::create(
        {.address = any_port(),
         .forms = fuzzed_forms(),
         .page_bytes = kFuzzedPage,
         .files = std::make_shared<FileStore>(files, FileStore::calls_for(folder)),
         .counts = std::make_shared<PageServer::Counts>(),
         .prefills = prefills,
         .role = std::make_shared<PrefillRole>(
             PrefillRole::Options{.mode = Disaggregation::prefill, .can_prefill = true}),
         .submit = [prefills](const PrefillPrompt& asked) -> Result<RequestId> {
           HOCKET_CHECK(
               (!asked.tokens.empty() && asked.tokens.size() * 4 <= PageLink::kMaxAskedBytes));
           return RequestId{1};  // computed at once
         },
         .abort = [](RequestId) {}});
    HOCKET_CHECK(made.has_value());
    server = *std::move(made);
    server->start();
  }
  std::unique_ptr<PageServer> server;
};

void ask_a_server(Spoken spoken, std::span<const uint8_t> input) {
  static const FuzzedServer fuzzed;  // its threads end before leaks are looked for
  Fd socket = connect_to(fuzzed.server->address());
  const int number = socket.get();
  PageLink link(std::move(socket), "the server", never);
  if (spoken != Spoken::strange) {
    HOCKET_CHECK(link.client_handshake("").has_value());
    const PageKey form = fuzzed_forms()->form();
    HOCKET_CHECK(
        link.send(PageFrame::form, {reinterpret_cast<const char*>(form.data()), form.size()})
            .has_value());
    HOCKET_CHECK(link.receive(PageLink::kSilence, 1024).has_value());
  }
  speak(link, number, spoken, input);
  shutdown(number, SHUT_WR);
  // Every answer is well formed, until the server leaves.
  while (auto frame = link.receive(PageLink::kSilence, kFuzzedPage + sizeof(PageKey) + 4096)) {
    if (frame->type != PageFrame::page) continue;
    HOCKET_CHECK(frame->payload.size() == sizeof(PageKey) + kFuzzedPage);
    const auto first = static_cast<uint8_t>(frame->payload.front());
    HOCKET_CHECK((first == 1 || first == 2));
  }
  wait_for_end(number);
}

// Asks the stranger for the pages of a prompt. Where its pages have another size, their bytes are
// made into pages here.
void ask_the_stranger(PromptPages& stranger, bool has_our_size) {
  const std::vector<TokenId> prompt(kFuzzedPrompt);
  std::vector<PageKey> keys = {key_number(1), key_number(2)};
  std::vector<std::byte> page(kFuzzedPage);
  if (!has_our_size) {
    const auto page_tokens = fuzzed_forms()->page_tokens();
    keys.clear();
    PageKeys(fuzzed_forms()->form(), static_cast<size_t>(page_tokens)).append_to({}, prompt, keys);
    page.resize(static_cast<size_t>(fuzzed_forms()->pages(page_tokens).page_bytes()));
  }
  if (const auto held = stranger.last_held(keys)) HOCKET_CHECK(*held <= keys.size());
  if (!stranger.expect(keys, PageKind::page)) return;
  for (const PageKey& key : keys) {
    const auto found = stranger.get(key, page);
    if (!found || !*found) return;
  }
}

void answer_a_client(Spoken spoken, uint32_t size, std::span<const uint8_t> input) {
  static const auto listener = [] {
    auto made = listen_on(any_port());
    HOCKET_CHECK(made.has_value());
    return *std::move(made);
  }();
  std::thread stranger([&] {
    pollfd one{.fd = listener.get(), .events = POLLIN, .revents = 0};
    if (poll(&one, 1, 1000) != 1) return;
    Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    const int number = socket.get();
    PageLink link(std::move(socket), "the client", never);
    if (spoken != Spoken::strange) {
      if (!link.server_handshake("") || !link.receive(PageLink::kSilence, 1024) ||
          !link.send(PageFrame::ok, {}, std::as_bytes(std::span(&size, 1))))
        return;
    }
    speak(link, number, spoken, input);
    shutdown(number, SHUT_WR);
  });
  const HostPort here{.host = "127.0.0.1", .port = local_address(listener).port()};
  PeerSource source({.peers = {here}, .forms = fuzzed_forms()});
  const std::vector<TokenId> prompt(kFuzzedPrompt);
  if (auto reading = source.open({.prompt = prompt, .is_over = never}); reading && *reading) {
    HOCKET_CHECK((spoken == Spoken::strange || PageForms::is_size(size)));
    ask_the_stranger(**reading, std::cmp_equal(size, fuzzed_forms()->page_tokens()));
  }
  stranger.join();
}

}  // namespace

// A thread of the server may end while the next input runs, and what it is about to free would look
// lost. So leaks are looked for at the end alone.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::vector<char*> arguments(*argv, *argv + *argc);
  static std::string flag = "-detect_leaks=0";
  arguments.push_back(flag.data());
  arguments.push_back(nullptr);
  *argc += 1;
  *argv = arguments.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto spoken = static_cast<Spoken>((data[0] >> 1) % 3);
  std::span<const uint8_t> input(data + 1, size - 1);
  auto page_tokens = static_cast<uint32_t>(fuzzed_forms()->page_tokens());
  if ((data[0] & 0x80) != 0 && input.size() >= sizeof page_tokens) {
    std::memcpy(&page_tokens, input.data(), sizeof page_tokens);
    input = input.subspan(sizeof page_tokens);
  }
  if ((data[0] & 1) != 0)
    ask_a_server(spoken, input);
  else
    answer_a_client(spoken, page_tokens, input);
  return 0;
}
