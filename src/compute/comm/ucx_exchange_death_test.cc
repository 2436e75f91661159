// Tests a rank whose process dies before or during a dispatch or combine: the others learn its name
// at once and continue without it in the next epoch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/comm/exchange_faults_testing.h"
#include "compute/comm/exchange_testing.h"
#include "compute/comm/killed_rank_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::expect_lost;
using ::testing::HasSubstr;
using testing::kKilledRank;
using Kind = MessageKind;

constexpr int kSteps = 3, kLayers = 4;
constexpr uint64_t kFatalStep = 1;
constexpr size_t kShort = 1000;
// More than the kernel buffers for a receiver that does not look.
constexpr size_t kBeyondBuffers = 12'000'000;

struct Death {
  Kind kind = Kind::dispatch;
  bool in_midst = false;  // during the exchange; else before its start
  int layer = 0;
  bool is_in(Kind k, Stamp now) const {
    return k == kind && now.step == kFatalStep && now.layer == layer;
  }
};

// A rank that plays passes; its messages contain only its number.
class Player {
 public:
  Player(Transport& end, const Death& death) : rows_(kBeyondBuffers, std::byte(end.rank())) {
    MessageSizes most{kShort, kShort, kShort};
    if (death.in_midst) most[static_cast<size_t>(death.kind)] = kBeyondBuffers;
    const AllToAll::Options with{.max_bytes = on_lanes(1, most), .stall_timeout = 10s};
    exchange_ = testing::make(end, with);
  }
  AllToAll& exchange() { return *exchange_; }

  size_t num_bytes = kShort;  // length of the next message
  // Called before and after each start of dispatch and combine.
  std::function<void(Kind kind, Stamp now)> before = [](Kind, Stamp) {}, after = before;

  Result<void> play() {
    for (uint64_t step = 0; step < kSteps; ++step) {
      HOCKET_TRY_VOID(start(Kind::agree, {.step = step}));
      for (uint16_t layer = 0; layer < kLayers; ++layer) {
        for (const Kind kind : {Kind::dispatch, Kind::combine}) {
          const Stamp now{.step = step, .layer = layer};
          before(kind, now);
          HOCKET_TRY_VOID(start(kind, now));
          after(kind, now);
          HOCKET_TRY_VOID(finish(kind, now));
        }
      }
      HOCKET_TRY_VOID(finish(Kind::agree, {.step = step}));
    }
    return {};
  }
  Result<void> start(Kind kind, Stamp now) {
    const std::span<const std::byte> part[] = {std::span(rows_).first(num_bytes)};
    const std::vector<AllToAll::Parts> all(testing::kDeathTestRanks, part);
    return exchange_->start(0, kind, now, all);
  }

 private:
  Result<void> finish(Kind kind, Stamp now) {
    HOCKET_TRY_VOID(exchange_->wait(0, kind, now));
    for (int peer = 0; peer < exchange_->num_ranks(); ++peer) {
      if (peer == exchange_->rank()) continue;
      const auto bytes = exchange_->from(0, kind, peer);
      EXPECT_EQ(bytes.front(), std::byte(peer));
      EXPECT_EQ(bytes.back(), std::byte(peer));
    }
    exchange_->release(0, kind);
    return {};
  }

  std::vector<std::byte> rows_;  // must outlive the exchange
  std::unique_ptr<AllToAll> exchange_;
};

TEST(UcxExchangeMortal, DISABLED_Rank) {
  const auto life = testing::begin_killed_rank();
  if (life.end == nullptr) GTEST_SKIP() << "run by UcxExchangeDeath only";
  int kind = 0, in_midst = 0, layer = 0;
  ASSERT_EQ(std::sscanf(life.task.c_str(), "%d %d %d", &kind, &in_midst, &layer), 3);
  const Death death{.kind = static_cast<Kind>(kind), .in_midst = in_midst != 0, .layer = layer};
  Player player(*life.end, death);
  player.before = [&](Kind k, Stamp now) {
    if (!death.is_in(k, now)) return;
    if (!death.in_midst) testing::die();
    life.wait_for_signal();
    player.num_bytes = kBeyondBuffers;
  };
  player.after = [&](Kind k, Stamp now) {
    if (death.is_in(k, now)) testing::die();
  };
  testing::check(player.play());
}

// Checks what ranks 0 and 2 see. They do not notice a broken message before the process is dead:
// the rest of it does not fit into the buffers on the way.
void survive(Transport& end, Player& player, testing::KilledRank& killed, const Death& death,
             std::barrier<>& nobody_looks) {
  TimePoint started;
  player.after = [&](Kind kind, Stamp now) {
    if (death.in_midst && death.is_in(kind, now)) {
      nobody_looks.arrive_and_wait();
      if (end.rank() == 0) killed.go_on();
      EXPECT_TRUE(killed.wait_until_dead());
    }
    started = end.now();
  };
  const Result<void> first = player.play();
  nobody_looks.arrive_and_drop();
  EXPECT_LT(end.now() - started, 2s);
  const std::string where =
      fmt::format("{} of step {}, layer {}", death.kind == Kind::dispatch ? "dispatch" : "combine",
                  kFatalStep, death.layer);
  expect_lost(first, AllOf(HasSubstr("rank 1 is lost: "), HasSubstr(where)));
  AllToAll& exchange = player.exchange();
  EXPECT_EQ(exchange.lost_peer(), kKilledRank);
  const auto same = ::testing::StrEq(first.has_value() ? "" : first.error().message);
  for (const Kind kind : {Kind::dispatch, Kind::combine, Kind::agree}) {
    const Stamp next{.step = kFatalStep + 1};
    expect_lost(player.start(kind, next), same);
    expect_lost(exchange.wait(0, kind, next), same);
    EXPECT_TRUE(exchange.from(0, kind, kKilledRank).empty());
  }
}

using Case = std::tuple<const char*, Kind, bool, int>;  // way, kind, in_midst, layer

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const auto [way, kind, in_midst, layer] = info.param;
  return fmt::format("{}{}{}OfLayer{}", way, in_midst ? "In" : "Before",
                     kind == Kind::dispatch ? "Dispatch" : "Combine", layer);
}

class UcxExchangeDeath : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Ways, UcxExchangeDeath,
                         ::testing::Combine(::testing::Values("posix", "tcp"),
                                            ::testing::Values(Kind::dispatch, Kind::combine),
                                            ::testing::Bool(), ::testing::Values(1, 2)),
                         name_of);

TEST_P(UcxExchangeDeath, IsToldAtOnceAndTheOthersMeetAgain) {
  const auto [way, kind, in_midst, layer] = GetParam();
  const Death death{.kind = kind, .in_midst = in_midst, .layer = layer};
  const UcxOptions options = testing::killed_rank_options(way);
  if (const auto why = testing::ucx_obstacle(options); !why.empty()) GTEST_SKIP() << why;
  testing::KilledRank killed(way, "UcxExchangeMortal.DISABLED_Rank",
                             fmt::format("{} {} {}", static_cast<int>(kind), int{in_midst}, layer));
  UcxOptions next = options;
  next.epoch = options.epoch + 1;
  testing::UcxAddressExchange again(2, next, 2);
  std::barrier nobody_looks(2), both_saw_it(2);
  testing::on_survivors(killed, options, [&](std::unique_ptr<UcxTransport> end) {
    const int rank = end->rank();
    {
      Player player(*end, death);
      survive(*end, player, killed, death, nobody_looks);
      both_saw_it.arrive_and_wait();  // a rank that leaves counts as lost, too
    }
    end.reset();
    end = again.join(rank / 2);
    testing::two_halves(*end, 3, 3);
  });
}

}  // namespace
}  // namespace hocket
