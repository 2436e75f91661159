// Tests a rank whose process dies: the others learn its name, over shared memory and over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <vector>

#include "compute/comm/killed_rank_testing.h"
#include "compute/comm/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::channel;
using ::testing::HasSubstr;
using testing::kKilledRank;
using testing::receive;
using testing::send;
using Bytes = std::vector<std::byte>;

constexpr size_t kLong = 3'000'000;

// The process that dies: after a short message to each rank, in the middle of a long one.
TEST(UcxMortal, DISABLED_Rank) {
  const auto life = testing::begin_killed_rank();
  if (life.end == nullptr) GTEST_SKIP() << "run by UcxDeath only";
  UcxTransport& end = *life.end;
  const Bytes longer(kLong), word(10, std::byte{7});
  Bytes slot(10);
  for (const int peer : {0, 2}) {
    end.expect(channel(peer), slot);
    ASSERT_TRUE(send(end, channel(peer), word).has_value());
    ASSERT_TRUE(receive(end, channel(peer)).has_value());
  }
  for (const int peer : {0, 2}) ASSERT_TRUE(send(end, channel(peer, 1), longer).has_value());
  end.progress();
  testing::die();
}

class UcxDeath : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ways, UcxDeath, ::testing::Values("posix", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

// Checks what ranks 0 and 2 see: rank 1 is lost, and they still reach each other.
void survive(UcxTransport& end) {
  const int other = 2 - end.rank();
  Bytes word(10), longer(kLong), slot(10);
  const Bytes mine(10, std::byte{9});
  end.expect(channel(kKilledRank), word);
  end.expect(channel(kKilledRank, 1), longer);
  ASSERT_TRUE(send(end, channel(kKilledRank), mine).has_value());
  const auto first = receive(end, channel(kKilledRank));
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ(word, Bytes(10, std::byte{7}));
  const TimePoint before = end.now();
  auto last = receive(end, channel(kKilledRank, 1));
  if (last.has_value()) {  // it came in time; then a next one does not
    end.expect(channel(kKilledRank, 1), longer);
    last = receive(end, channel(kKilledRank, 1));
  }
  ASSERT_FALSE(last.has_value());
  EXPECT_LT(end.now() - before, 10s);
  EXPECT_EQ(last.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(last.error().message, HasSubstr("rank 1 is lost: "));
  EXPECT_FALSE(send(end, channel(kKilledRank), word).has_value());
  for (int i = 0; i < 20; ++i) {
    end.expect(channel(other), slot);
    ASSERT_TRUE(send(end, channel(other), mine).has_value());
    const auto arrival = receive(end, channel(other));
    ASSERT_TRUE(arrival.has_value()) << arrival.error().message;
    EXPECT_EQ(slot, mine);
    testing::wait_until_sent(end, channel(other));
  }
  const TimePoint closing = end.now();
  end.withdraw();
  EXPECT_LT(end.now() - closing, 5s);
}

TEST_P(UcxDeath, IsToldWithItsName) {
  const UcxOptions options = testing::killed_rank_options(GetParam());
  if (const auto why = testing::ucx_obstacle(options); !why.empty()) GTEST_SKIP() << why;
  testing::KilledRank killed(GetParam(), "UcxMortal.DISABLED_Rank");
  std::barrier both_saw_it(2);
  testing::on_survivors(killed, options, [&](std::unique_ptr<UcxTransport> end) {
    survive(*end);
    both_saw_it.arrive_and_wait();
  });
}

}  // namespace
}  // namespace hocket
