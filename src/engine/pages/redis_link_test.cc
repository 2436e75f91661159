// Tests the connection to a Redis with sides that go on a little at a time.
#include "engine/pages/redis_link.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "engine/pages/connect.h"

namespace hocket {
namespace {

constexpr size_t kSlowValue = size_t{64} << 20;
constexpr int kPatienceMs = 10000;

// A store that takes a value a little at a time delays the end no longer than one that hangs.
TEST(RedisLinkTest, AValueThatIsTakenSlowlyIsBrokenOffWhenNobodyNeedsIt) {
  if (!can_use_redis()) GTEST_SKIP() << "built without hiredis";
  const auto listener = listen_on(resolve({.host = "127.0.0.1", .port = 0}).value().front());
  ASSERT_TRUE(listener);
  std::atomic<size_t> taken{0};
  std::thread slow([&] {
    pollfd comes{.fd = listener->get(), .events = POLLIN, .revents = 0};
    if (poll(&comes, 1, kPatienceMs) <= 0) return;
    const Fd socket(accept(listener->get(), nullptr, nullptr));
    std::array<char, 4096> bytes{};
    for (ssize_t got = 1; got > 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      got = recv(socket.get(), bytes.data(), bytes.size(), 0);
      taken += static_cast<size_t>(std::max<ssize_t>(got, 0));
    }
  });
  {
    const std::array to = {local_address(*listener)};
    auto socket = connect_to_first(to, RedisLink::kConnect, [] { return false; });
    ASSERT_TRUE(socket);
    RedisLink link(ServerStream(*std::move(socket)), "a slow store");
    link.watch([&] { return taken > size_t{1} << 20; });
    const auto sent = link.send({"SET", "key", std::string(kSlowValue, 'v')});
    const size_t taken_then = taken;
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().code, ErrorCode::shutting_down) << sent.error().message;
    EXPECT_LT(taken_then, kSlowValue / 2);
  }
  slow.join();
}

}  // namespace
}  // namespace hocket
