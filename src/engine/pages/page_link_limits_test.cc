// Tests the limit of one frame between services: a peer that sends or takes it byte by byte gets no
// more time than one that is silent.
#include "engine/pages/page_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace hocket {
namespace {

using namespace std::chrono_literals;

class PageLinkTest : public ::testing::Test {
 protected:
  PageLinkTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    link_.emplace(Fd(ends[0]), "the peer", [] { return false; });
    other_ = Fd(ends[1]);
  }

  std::optional<PageLink> link_;
  Fd other_;
};

TEST_F(PageLinkTest, AFrameThatTricklesEndsTheWait) {
  std::atomic<bool> over{false};
  std::thread sender([&] {
    const uint32_t length = 4000;
    EXPECT_EQ(send(other_.get(), &length, sizeof length, 0), 4);
    while (!over && send(other_.get(), "x", 1, MSG_NOSIGNAL) == 1)
      std::this_thread::sleep_for(50ms);
  });
  const TimePoint begin = RealClock().now();
  const auto frame = link_->receive(PageLink::kSilence, 8192);
  const Duration took = RealClock().now() - begin;
  over = true;
  sender.join();
  ASSERT_FALSE(frame.has_value());
  EXPECT_NE(frame.error().message.find("has not answered in time"), std::string::npos);
  EXPECT_LT(took, PageLink::kSilence + 2s);
}

TEST_F(PageLinkTest, APeerThatTakesAFrameByteByByteEndsTheWait) {
  std::atomic<bool> over{false};
  const int small = 4096;
  ASSERT_EQ(setsockopt(other_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  std::thread taker([&] {
    std::array<char, 256> some{};
    while (!over) {
      static_cast<void>(recv(other_.get(), some.data(), some.size(), 0));
      std::this_thread::sleep_for(50ms);
    }
  });
  const std::vector<std::byte> page(size_t{1} << 20);
  const TimePoint begin = RealClock().now();
  const auto sent = link_->send(PageFrame::page, {}, page);
  const Duration took = RealClock().now() - begin;
  over = true;
  taker.join();
  ASSERT_FALSE(sent.has_value());
  EXPECT_LT(took, PageLink::kSilence + 1s + 2s);
}

}  // namespace
}  // namespace hocket
