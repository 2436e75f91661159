// Tests how many pages are asked for at once: a peer sends no more than have buffers here.
#include "engine/pages/peer_source.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <span>
#include <string>
#include <vector>

#include "base/thread.h"

namespace hocket {
namespace {

constexpr size_t kAskedPageBytes = 100;

std::vector<PageKey> asked_keys(uint8_t count) {
  std::vector<PageKey> keys;
  for (uint8_t i = 0; i < count; ++i) keys.push_back({i});
  return keys;
}

// Serves one client that asks for as many pages at a time.
void serve_pages(int listener, const std::vector<size_t>& counts) {
  pollfd one{.fd = listener, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&one, 1, 20'000), 1);
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ASSERT_TRUE(socket);
  PageLink link(std::move(socket), "the client", [] { return false; });
  ASSERT_TRUE(link.server_handshake(""));
  ASSERT_TRUE(link.receive(PageLink::kSilence, 1024));
  const uint32_t page_tokens = 32;
  ASSERT_TRUE(link.send(PageFrame::ok, {}, std::as_bytes(std::span(&page_tokens, 1))));
  const std::vector<std::byte> page(kAskedPageBytes, std::byte{5});
  for (const size_t count : counts) {
    const auto question = link.receive(PageLink::kSilence, PageLink::kMaxAskedBytes);
    ASSERT_TRUE(question.has_value());
    ASSERT_EQ(question->type, PageFrame::get);
    ASSERT_EQ(question->payload.size(), 1 + count * sizeof(PageKey));
    const std::string keys(question->payload.substr(1));
    for (size_t i = 0; i < count; ++i)
      ASSERT_TRUE(
          link.send(PageFrame::page, keys.substr(i * sizeof(PageKey), sizeof(PageKey)), page));
  }
}

TEST(PeerQuestions, AskForAsManyPagesAsHaveBuffers) {
  const auto listener = listen_on(resolve({.host = "127.0.0.1"}).value().front());
  ASSERT_TRUE(listener.has_value());
  PeerSource peer({.peers = {{.host = "127.0.0.1", .port = local_address(*listener).port()}},
                   .forms = std::make_shared<const PageForms>(PageForms::Parts{
                       .pages = {.layers = {{.num_heads = 1, .key_dim = 32, .value_dim = 32}}}})});
  const Thread server({.name = "peer"},
                      [&] { serve_pages(listener->get(), {size_t{1}, size_t{3}, size_t{2}}); });
  const std::vector<TokenId> prompt(10, TokenId{1});
  const auto pages = peer.open({.prompt = prompt, .is_over = [] { return false; }});
  ASSERT_TRUE(pages.has_value());
  ASSERT_NE(*pages, nullptr);
  const std::vector<PageKey> keys = asked_keys(6);
  ASSERT_TRUE((*pages)->expect(keys, PageKind::page));
  std::vector<std::byte> page(kAskedPageBytes);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i == 1) (*pages)->note_room(3);
    if (i > 1) (*pages)->note_room(1000);  // the pages that were asked for come first
    EXPECT_TRUE((*pages)->get(keys[i], page).value_or(false)) << i;
  }
  EXPECT_EQ(peer.counts().peer_pages_total, 6u);
}

}  // namespace
}  // namespace hocket
