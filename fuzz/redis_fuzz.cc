// Fuzzes what a Redis sends to a store of pages (engine/pages/redis_store.h). A stranger answers
// each question with the bytes of the input; a page is only ever taken with the bytes that its key
// has, and whatever comes, the call returns.
//
//   input: a byte that chooses the question, then all that the stranger sends. Where it has the
//   byte 1 before a $, the whole value of the page is in its place, as a reply.
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "engine/pages/redis_store.h"

using namespace hocket;

namespace {

constexpr size_t kFuzzedValue = 64;

PageKey fuzzed_key() {
  PageKey key{};
  key.fill(1);
  return key;
}

std::vector<std::byte> fuzzed_page() {
  return std::vector<std::byte>(kFuzzedValue, std::byte{7});
}

// Returns what the stranger sends.
std::string spoken(std::string_view input) {
  const PageHeader header = make_page_header(fuzzed_key(), fuzzed_page());
  std::string whole = fmt::format("${}\r\n", sizeof header + kFuzzedValue);
  whole.append(reinterpret_cast<const char*>(&header), sizeof header);
  whole.append(kFuzzedValue, '\7').append("\r\n");
  std::string text;
  for (size_t i = 0; i < input.size(); ++i) {
    if (input.substr(i).starts_with("\1$"))
      text += whole, ++i;
    else
      text.push_back(input[i]);
  }
  return text;
}

// Sends the text to the first that connects, then reads until the other side leaves. Later
// connections are refused.
void answer(Fd listener, const std::string& text) {
  pollfd one{.fd = listener.get(), .events = POLLIN, .revents = 0};
  if (poll(&one, 1, 1000) != 1) return;
  const Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  listener = Fd();
  if (!socket) return;
  ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(socket.get(), SHUT_WR);
  std::array<char, 4096> bytes;
  while (recv(socket.get(), bytes.data(), bytes.size(), 0) > 0) {
  }
}

void read_page(RedisStore& store) {
  const auto reading = store.open({.is_over = [] { return false; }});
  if (!reading || *reading == nullptr) return;
  const PageKey key = fuzzed_key();
  if (const auto held = (*reading)->last_held({&key, 1})) HOCKET_CHECK(*held <= 1u);
  if (!(*reading)->expect({&key, 1}, PageKind::page)) return;
  std::vector<std::byte> page(kFuzzedValue);
  if (const auto found = (*reading)->get(key, page); found && *found)
    HOCKET_CHECK(page == fuzzed_page());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  auto listener = listen_on(resolve({.host = "127.0.0.1", .port = 0})->front());
  HOCKET_CHECK(listener.has_value());
  const uint16_t port = local_address(*listener).port();
  const std::string text = spoken({reinterpret_cast<const char*>(data) + 1, size - 1});
  std::thread stranger(
      [&text, listener = *std::move(listener)]() mutable { answer(std::move(listener), text); });
  {
    RedisStore store({.address = {.host = {"127.0.0.1", port},
                                  .user = (data[0] & 4) != 0 ? "me" : "",
                                  .password = (data[0] & 4) != 0 ? "word" : ""},
                      .retry_interval = Duration(0)});
    const std::vector<std::byte> page = fuzzed_page();
    const PageStore::Page one{fuzzed_key(), page};
    switch (data[0] & 3) {
      case 0:
        read_page(store);
        break;
      case 1:
        if (const auto put = store.put({&one, 1}, [] { return false; })) HOCKET_CHECK(*put <= 1u);
        break;
      case 2:
        static_cast<void>(store.describe());
        break;
      default:
        static_cast<void>(parse_redis_address(text));
        read_page(store);
    }
  }
  stranger.join();
  return 0;
}
