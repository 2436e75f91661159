// Tests what bounds the pages that are given to peers: clients beyond the number of buffers wait
// for one, and hear meanwhile that the service is there; those beyond the number of connections
// hear that it is busy, and leave it in use. Strangers keep no client out, fill no log and end no
// process.
#include "engine/pages/page_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <exception>
#include <fstream>
#include <span>
#include <thread>
#include <vector>

#include "engine/pages/page_server_testing.h"

namespace hocket {
namespace {

using testing::PageServerTest;

// While it lives, the process can start no thread: there is no room for a stack, and threads that
// wait for the end have those that the C library keeps for later ones.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    limit.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{2} << 20);
    setrlimit(RLIMIT_AS, &limit);
    try {
      while (true) threads_.push_back(Thread({.name = "waits"}, [this] { over_.wait(false); }));
    } catch (const std::exception&) {
    }
  }
  ~NoMoreThreads() {
    setrlimit(RLIMIT_AS, &before_);
    over_ = true;
    over_.notify_all();
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  rlimit before_{};
  std::atomic<bool> over_{false};
  std::vector<Thread> threads_;
};

TEST_F(PageServerTest, AClientBeyondTheNumberOfBuffersWaitsForOne) {
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

TEST_F(PageServerTest, AClientBeyondTheConnectionsIsToldAndComesAgain) {
  start();
  ASSERT_NE(server_, nullptr);
  std::deque<std::unique_ptr<PageLink>> all;
  for (int i = 0; i < PageServer::kMaxConnections; ++i) all.push_back(introduce(PageFrame::ok));
  introduce(PageFrame::busy);
  const auto peer = this->peer();
  const std::vector<TokenId> prompt(10, TokenId{1});
  const auto refused =
      peer->open({.prompt = prompt, .computes = true, .is_over = [] { return false; }});
  ASSERT_TRUE(refused.has_value()) << "that is no fault";
  EXPECT_EQ(*refused, nullptr);
  EXPECT_EQ(peer->counts().peer_failures_total, 0u);
  EXPECT_EQ(peer->counts().peer_refusals_total, 1u);
  all.pop_front();
  EXPECT_TRUE(comes_true([&] { return opens(*peer, 10); }));
}

TEST_F(PageServerTest, APeerThatNamesNoSizeOfPagesIsLeftAlone) {
  for (const uint32_t size : {0u, 48u, 256u, 1u << 31}) {
    SCOPED_TRACE(size);
    const auto listener = listen_on(resolve({.host = "127.0.0.1"}).value().front());
    ASSERT_TRUE(listener.has_value());
    const std::jthread stranger([&] {
      pollfd one{.fd = listener->get(), .events = POLLIN, .revents = 0};
      if (poll(&one, 1, 20'000) != 1) return;
      Fd socket(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      PageLink link(std::move(socket), "the client", [] { return false; });
      EXPECT_TRUE(link.server_handshake(kToken));
      EXPECT_TRUE(link.receive(PageLink::kSilence, 1024));
      EXPECT_TRUE(link.send(PageFrame::ok, {}, std::as_bytes(std::span(&size, 1))));
    });
    PeerSource peer({.peers = {{.host = "127.0.0.1", .port = local_address(*listener).port()}},
                     .token = kToken,
                     .forms = forms_});
    const std::vector<TokenId> prompt(32, TokenId{1});
    const auto never = [] { return false; };
    EXPECT_FALSE(peer.open({.prompt = prompt, .is_over = never}));
    EXPECT_EQ(peer.counts().peer_failures_total, 1u);
    const auto again = peer.open({.prompt = prompt, .is_over = never});
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(*again, nullptr) << "it is avoided";
  }
}

// They hold only connections that no client with the token has.
TEST_F(PageServerTest, StrangersTakeNoConnectionOfClients) {
  start();
  ASSERT_NE(server_, nullptr);
  std::deque<Fd> strangers;
  for (int i = 0; i < PageServer::kMaxStrangers / 2; ++i) strangers.push_back(connect());
  std::deque<std::unique_ptr<PageLink>> all;
  for (int i = 0; i < PageServer::kMaxConnections; ++i) all.push_back(introduce(PageFrame::ok));
}

// They say nothing and stay, and more come than the service has threads for.
TEST_F(PageServerTest, AFloodOfSilentStrangersKeepsNoClientOut) {
  start();
  ASSERT_NE(server_, nullptr);
  std::deque<Fd> strangers;
  for (int i = 0; i < PageServer::kMaxStrangers; ++i) strangers.push_back(connect());
  introduce(PageFrame::ok);
  EXPECT_TRUE(comes_true([&] { return num_refused() == 1; })) << "the oldest has given way";
  constexpr int kMore = 2 * PageServer::kMaxClients;
  for (int i = 1; i <= kMore; ++i) {
    strangers.push_back(connect());
    if (i % PageServer::kMaxStrangers != 0 && i != kMore) continue;
    // The listener's queue is short.
    ASSERT_TRUE(comes_true([&] { return num_refused() == static_cast<uint64_t>(i); }));
  }
  introduce(PageFrame::ok);
}

// One that sends its proof byte by byte gives way like one that is silent.
TEST_F(PageServerTest, AStrangerThatTricklesGivesWay) {
  start();
  ASSERT_NE(server_, nullptr);
  const Fd slow = connect();
  std::deque<Fd> strangers;
  for (int i = 0; i < PageServer::kMaxStrangers; ++i) strangers.push_back(connect());
  ASSERT_TRUE(comes_true([&] { return num_refused() == 1; }));
  const uint32_t length = kMaxStrangerFrameBytes;
  std::string frame(reinterpret_cast<const char*>(&length), sizeof length);
  frame.resize(sizeof length + length);
  size_t num_sent = 0;
  const bool ended = comes_true([&] {
    if (num_sent < frame.size() && send(slow.get(), &frame[num_sent], 1, MSG_NOSIGNAL) == 1)
      ++num_sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    char byte = 0;
    ssize_t got = 0;
    while ((got = recv(slow.get(), &byte, 1, MSG_DONTWAIT)) > 0) continue;
    return got == 0 || errno != EAGAIN;
  });
  EXPECT_TRUE(ended);
  EXPECT_LT(num_sent, frame.size());
}

TEST_F(PageServerTest, StrangersWithAnotherTokenDoNotFillTheLog) {
  start();
  ASSERT_NE(server_, nullptr);
  constexpr uint64_t kStrangers = 50;
  ::testing::internal::CaptureStderr();
  for (uint64_t i = 0; i < kStrangers; ++i) {
    PageLink link(connect(), "the server", [] { return false; });
    EXPECT_FALSE(link.client_handshake("another token, as long"));
  }
  EXPECT_TRUE(comes_true([&] { return num_refused() == kStrangers; }));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(lines.contains("token")) << lines;
  EXPECT_LE(std::ranges::count(lines, '\n'), 2) << lines;
}

// In a process of its own, which has no address space for the stack of another thread.
TEST_F(PageServerTest, WithoutThreadsTheServiceLivesAndAnswersLater) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    start();
    bool is_refused = false;
    {
      const NoMoreThreads no_more;
      const Fd socket = connect();
      is_refused = comes_true([&] { return num_refused() == 1; });
    }
    const bool answers = is_refused && introduce(PageFrame::ok) != nullptr;
    _exit(answers && !HasFailure() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The peer would end the connection behind a question that is too long.
TEST_F(PageServerTest, APromptThatIsTooLongForAQuestionLeavesThePeerInUse) {
  start();
  ASSERT_NE(server_, nullptr);
  const auto peer = this->peer();
  EXPECT_FALSE(opens(*peer, PageLink::kMaxAskedBytes / sizeof(TokenId)));
  EXPECT_EQ(peer->counts().peer_failures_total, 0u);
  EXPECT_TRUE(opens(*peer, 10));
}

// The first pages of a prompt would be deleted for its last ones before a client has them.
TEST_F(PageServerTest, APromptThatTheFolderCannotHoldIsRefused) {
  start();
  ASSERT_NE(server_, nullptr);
  page_files_->limit(8 * (kPageBytes + 4096));
  const auto peer = this->peer();
  const auto page_tokens = static_cast<size_t>(forms_->page_tokens());
  EXPECT_FALSE(opens(*peer, 5 * page_tokens));
  EXPECT_EQ(num_refused(), 1u);
  const auto open = [&] {
    const std::vector<TokenId> prompt(3 * page_tokens, TokenId{1});
    return peer->open({.prompt = prompt, .computes = true, .is_over = [] { return false; }})
        .value();
  };
  const auto first = open();
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(open(), nullptr) << "not beside the first one";
  EXPECT_EQ(peer->counts().peer_failures_total, 0u);
  EXPECT_EQ(peer->counts().peer_refusals_total, 2u);
}

// A client may ask again on the same connection.
TEST_F(PageServerTest, APromptThatIsRefusedKeepsNoRoom) {
  start();
  ASSERT_NE(server_, nullptr);
  page_files_->limit(8 * (kPageBytes + 4096));
  const auto num_tokens = static_cast<size_t>(3 * forms_->page_tokens());
  const std::string prompt(sizeof(CacheNamespace) + num_tokens * sizeof(TokenId), '\0');
  const auto link = introduce(PageFrame::ok);
  for (const bool refuses : {true, false}) {
    refuses_ = refuses;
    ASSERT_TRUE(link->send(PageFrame::prefill, prompt));
    EXPECT_EQ(next(*link).type, refuses ? PageFrame::no : PageFrame::ok);
  }
}

// Serves one client up to its consent, which says that pages have `page_tokens`.
void consent_with(int listener, uint32_t page_tokens) {
  pollfd one{.fd = listener, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&one, 1, 20'000), 1);
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ASSERT_TRUE(socket);
  PageLink link(std::move(socket), "the client", [] { return false; });
  EXPECT_TRUE(link.server_handshake(""));
  EXPECT_TRUE(link.receive(PageLink::kSilence, 1024));
  EXPECT_TRUE(link.send(PageFrame::ok, {}, std::as_bytes(std::span(&page_tokens, 1))));
}

TEST(PeerSourceTest, APeerWhosePagesHaveAnImpossibleSizeIsLeftAlone) {
  const auto listener = listen_on(resolve({.host = "127.0.0.1"}).value().front());
  ASSERT_TRUE(listener.has_value());
  const auto forms = std::make_shared<const PageForms>(
      PageForms::Parts{.pages = {.layers = {{.num_heads = 1, .key_dim = 32, .value_dim = 32}}}});
  const std::vector<TokenId> prompt(10, TokenId{1});
  for (const uint32_t size : {0u, 48u, 256u, 1u << 31, 64u}) {
    SCOPED_TRACE(size);
    PeerSource peer({.peers = {{.host = "127.0.0.1", .port = local_address(*listener).port()}},
                     .forms = forms});
    const auto open = [&] {
      return peer.open({.prompt = prompt, .is_over = [] { return false; }});
    };
    {
      const Thread server({.name = "peer"}, [&] { consent_with(listener->get(), size); });
      EXPECT_EQ(open().has_value(), size == 64);
    }
    EXPECT_EQ(peer.counts().peer_failures_total > 0, size != 64);
    if (size == 64) continue;
    const auto again = open();
    ASSERT_TRUE(again.has_value()) << "it is not asked";
    EXPECT_EQ(*again, nullptr);
  }
}

}  // namespace
}  // namespace hocket
