// Tests what bounds the pages that are given to peers: askers beyond the number of buffers wait for
// one, and hear meanwhile that the service is there; those beyond the number of connections hear
// that it is busy, and leave it in use.
#include "engine/pages/page_server.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "base/folder_testing.h"
#include "engine/pages/dial.h"
#include "engine/pages/peer_source.h"

namespace hocket {
namespace {

class PageServerTest : public testing::FolderTest {
 protected:
  static constexpr int64_t kPageBytes = TierBuffers::kBytes / TierBuffers::kMinServed;

  void start() {
    auto opened = PageFiles::open(folder_);
    ASSERT_TRUE(opened.has_value());
    const auto files = std::make_shared<FileStore>(std::shared_ptr(*std::move(opened)),
                                                   FileStore::calls_for(folder_));
    const std::vector<std::byte> page(kPageBytes, std::byte{5});
    const PageStore::Page one{.key = kKey, .bytes = page};
    ASSERT_EQ(files->put({&one, 1}, [] { return false; }).value_or(0), 1u);
    auto server =
        PageServer::create({.address = resolve({.host = "127.0.0.1"}).value().front(),
                            .page_bytes = kPageBytes,
                            .files = files,
                            .counts = std::make_shared<PageServer::Counts>(),
                            .prefills = std::make_shared<PrefillWatch>(),
                            .role = std::make_shared<PrefillRole>(PrefillRole::Options{
                                .mode = Disaggregation::prefill, .can_prefill = true}),
                            .submit = [](const CacheNamespace&, const auto&) -> Result<RequestId> {
                              return RequestId{1};
                            },
                            .abort = [](RequestId) {}});
    ASSERT_TRUE(server.has_value());
    server_ = *std::move(server);
    server_->start();
  }
  Fd connect() const {
    const SocketAddress address = server_->address();
    auto socket = dial({&address, 1}, PageLink::kConnect, [] { return false; });
    EXPECT_TRUE(socket.has_value());
    return *std::move(socket);
  }
  // Connects; `answer` is what the server says to that.
  std::unique_ptr<PageLink> greet(PageFrame answer) const {
    auto link = std::make_unique<PageLink>(connect(), "the server", [] { return false; });
    EXPECT_TRUE(link->introduce({}));
    const PageKey form{};
    EXPECT_TRUE(link->send(PageFrame::form, text_of(form)));
    EXPECT_EQ(link->receive(PageLink::kSilence, 1024).value().type, answer);
    return link;
  }
  // Connects, and asks for the page without taking it.
  std::unique_ptr<PageLink> ask() const {
    auto link = greet(PageFrame::ok);
    EXPECT_TRUE(link->send(PageFrame::get, std::string(1, '\0') + text_of(kKey)));
    return link;
  }
  std::unique_ptr<PeerSource> peer() const {
    return std::make_unique<PeerSource>(
        PeerSource::Options{.peers = {{.host = "127.0.0.1", .port = server_->address().port()}},
                            .use = PeerUse::prefill});
  }
  static bool opens(PeerSource& peer, size_t num_tokens) {
    const std::vector<TokenId> prompt(num_tokens, TokenId{1});
    const auto pages =
        peer.open({.prompt = prompt, .computes = true, .is_over = [] { return false; }});
    return pages && *pages != nullptr;
  }
  static std::string text_of(const PageKey& key) {
    return {reinterpret_cast<const char*>(key.data()), key.size()};
  }
  static PageLink::Frame next(PageLink& link) {
    return link.receive(PageLink::kSilence, sizeof(PageKey) + kPageBytes).value();
  }

  static constexpr PageKey kKey = {1};
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageServerTest, AnAskerBeyondTheNumberOfBuffersWaitsForOne) {
  start();
  ASSERT_NE(server_, nullptr);
  std::deque<std::unique_ptr<PageLink>> first;
  const TimePoint end = RealClock().now() + std::chrono::seconds(20);
  for (int i = 0; i < TierBuffers::kMinServed; ++i) {
    first.push_back(ask());
    // Its page is more than the connection holds, so it keeps its buffer until it is taken.
    while (!first.back()->is_readable() && RealClock().now() < end) std::this_thread::yield();
    ASSERT_TRUE(first.back()->is_readable());
  }
  const auto late = ask();
  EXPECT_EQ(next(*late).type, PageFrame::waiting);
  EXPECT_EQ(next(*first.front()).payload.size(), sizeof(PageKey) + kPageBytes);
  PageLink::Frame got = next(*late);
  while (got.type == PageFrame::waiting && RealClock().now() < end) got = next(*late);
  EXPECT_EQ(got.type, PageFrame::page);
  EXPECT_EQ(got.payload.size(), sizeof(PageKey) + kPageBytes);
  EXPECT_EQ(got.payload.back(), '\5');
}

TEST_F(PageServerTest, AnAskerBeyondTheConnectionsIsToldAndComesAgain) {
  start();
  ASSERT_NE(server_, nullptr);
  std::deque<std::unique_ptr<PageLink>> all;
  for (int i = 0; i < PageServer::kMaxConnections; ++i) all.push_back(greet(PageFrame::ok));
  greet(PageFrame::busy);
  const auto peer = this->peer();
  EXPECT_FALSE(opens(*peer, 10));
  EXPECT_EQ(peer->counts().failures, 0u);
  all.pop_front();
  const TimePoint end = RealClock().now() + std::chrono::seconds(20);
  bool is_open = false;
  while (!is_open && RealClock().now() < end) is_open = opens(*peer, 10);
  EXPECT_TRUE(is_open);
}

// They hold only connections that no asker with the token has.
TEST_F(PageServerTest, StrangersTakeNoConnectionOfAskers) {
  start();
  ASSERT_NE(server_, nullptr);
  std::deque<Fd> strangers;
  for (int i = 0; i < PageServer::kMaxStrangers / 2; ++i) strangers.push_back(connect());
  std::deque<std::unique_ptr<PageLink>> all;
  for (int i = 0; i < PageServer::kMaxConnections; ++i) all.push_back(greet(PageFrame::ok));
}

// The peer would end the connection behind a question that is too long.
TEST_F(PageServerTest, APromptThatIsTooLongForAQuestionLeavesThePeerInUse) {
  start();
  ASSERT_NE(server_, nullptr);
  const auto peer = this->peer();
  EXPECT_FALSE(opens(*peer, PageLink::kMaxAskedBytes / sizeof(TokenId)));
  EXPECT_EQ(peer->counts().failures, 0u);
  EXPECT_TRUE(opens(*peer, 10));
}

}  // namespace
}  // namespace hocket
