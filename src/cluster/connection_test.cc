#include "cluster/connection.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <set>
#include <vector>

#include "cluster/control_role.h"

namespace hocket {
namespace {

// As many strangers as may be there send without a pause, beside all ranks, the listener and the
// control plane's own sockets.
TEST(ClusterPoller, OneCallReturnsAllThatAreReady) {
  const auto num = static_cast<size_t>(kMaxRanks + ClusterOptions().max_strangers + 4);
  Poller poller;
  std::vector<Fd> all;
  for (size_t i = 0; i < num; ++i) {
    all.emplace_back(eventfd(1, EFD_CLOEXEC));
    ASSERT_TRUE(all.back());
    poller.add(all.back(), i, EPOLLIN);
  }
  std::set<uint64_t> tokens;
  const auto events = poller.wait(RealClock().now());
  for (const epoll_event& event : events) tokens.insert(event.data.u64);
  EXPECT_EQ(tokens.size(), num);
  EXPECT_LT(events.size(), Poller::kMaxEvents) << "the control plane judges ranks after one wait";
}

}  // namespace
}  // namespace hocket
