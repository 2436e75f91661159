// Tests plans that change from step to step (any legal order, any cut, any parts, over links on
// which parts come in any sequence) and passes in which a rank is lost.
#include <barrier>
#include <deque>
#include <mutex>
#include <random>

#include "base/count_allocations_testing.h"
#include "compute/models/ep_ranks_testing.h"
#include "compute/overlap/testing.h"
#include "compute/overlap/tuning.h"

namespace hocket::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Random plans that ranks agree on, and for each rank where it cuts its rows.
struct RandomPlans {
  explicit RandomPlans(uint32_t seed) : random(seed) {
    const OrderTable& table = OrderTable::builtin();
    for (StepPlan& step_plan : steps) {
      switch (random() % 4) {
        case 0:
          orders.push_back(table.at(static_cast<int>(random() % table.size())));
          break;
        case 1:
          orders.push_back(tight_order(random));
          break;
        default:
          orders.push_back(random_order(random));
      }
      step_plan.order = &orders.back();
      step_plan.phase = random() % 2 == 0 ? Phase::prefill : Phase::decode;
      const Grain& grain = kTuning.grains[random() % kTuning.grains.size()];
      step_plan.parts = grain.parts, step_plan.waves = grain.waves;
      for (int& cut : cuts.emplace_back()) cut = static_cast<int>(random() % 1000);
    }
  }
  StepPlan of(int step, const Player& player, int rank) const {
    StepPlan step_plan = steps.at(step);
    step_plan.first_rows = cuts.at(step).at(rank) % (player.num_rows(step) + 1);
    return step_plan;
  }

  std::mt19937 random;
  std::deque<Order> orders;
  std::array<StepPlan, Script::kSteps.size()> steps;
  std::vector<std::array<int, 4>> cuts;  // [step][rank]
};

void expect_same_bits(const ModelCase& model, uint32_t first_seed, uint32_t num_seeds) {
  const int experts = config_of(model).moe.num_experts;
  const std::map<int, Script::Bits> want = {{4, on_one_rank(model, 4)},
                                            {experts, on_one_rank(model, experts)}};
  for (uint32_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    const RandomPlans plans(seed);
    const int groups = seed % 5 == 0 ? experts : 4, num_ranks = seed % 3 == 0 ? 2 : 4;
    const bool slow = seed % 2 == 0;
    LoopbackHub hub(num_ranks,
                    slow ? LinkModel{.bytes_per_s = 1e8,
                                     .latency = microseconds(20),
                                     .jitter = milliseconds(1),
                                     .seed = seed}
                         : LinkModel{},
                    slow ? LoopbackHub::Time::virtual_time : LoopbackHub::Time::real);
    Ranks ranks(model, num_ranks, groups);
    // Fewer parts than plans have.
    if (seed % 7 == 0) ranks.max_parts = 1 + static_cast<int>(seed % 2);
    const auto step_plan = [&](int step, const Player& player, int rank) {
      return plans.of(step, player, rank);
    };
    ASSERT_EQ(on_ranks_together(ranks, hub, step_plan), want.at(groups)) << "seed " << seed;
  }
}

TEST(RandomPlans, ChangeNoBitOverTheExchange) {
  expect_same_bits(kQwen, 0, 60);
  expect_same_bits(kQwenInt8, 100, 30);
  expect_same_bits(kDeepseek, 200, 30);
  expect_same_bits(kQwenNext, 300, 30);
  expect_same_bits({"kimi_linear", "tests/golden/kimi_linear", DType::bf16}, 400, 30);
  expect_same_bits({"mimo_v2_flash", "tests/golden/mimo_v2_flash", DType::bf16}, 500, 30);
}

TEST(RandomPlans, ChangeNoBitOverUcx) {
  for (const UcxOptions& ucx : {ucx_shared_memory(), ucx_tcp()}) {
    if (const auto why = ucx_obstacle(ucx); !why.empty()) GTEST_SKIP() << why;
    const Script::Bits want = on_one_rank(kQwen, 4);
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const RandomPlans plans(seed);
      const Ranks ranks(kQwen, seed % 2 == 0 ? 2 : 4, 4);
      const auto step_plan = [&](int step, const Player& player, int rank) {
        return plans.of(step, player, rank);
      };
      ASSERT_EQ(on_ranks_together(ranks, ucx, step_plan), want) << ucx.tls << ", seed " << seed;
    }
  }
}

TEST(RandomPlans, ChangeNoBitOnOneRank) {
  for (const ModelCase& model : {kQwen, kDeepseek, kQwenNext}) {
    const Script::Bits want = on_one_rank(model, 4);
    for (uint32_t seed = 0; seed < 30; ++seed) {
      const RandomPlans plans(seed);
      const auto step_plan = [&](int step) {
        StepPlan how = plans.steps.at(step);
        int rows = 0;
        for (const int of_sequence : Script::kSteps[step]) rows += of_sequence;
        how.first_rows = plans.cuts.at(step)[0] % (rows + 1);
        return how;
      };
      ASSERT_EQ(on_one_rank(model, 4, step_plan), want) << "seed " << seed;
    }
  }
}

// Calls `act` in the middle of a pass.
class Breaker final : public ForwardProbe {
 public:
  explicit Breaker(std::function<void()> act) : act_(std::move(act)) {}
  void after(int layer, Op op, const Half& half) override {
    if (layer == 2 && op == Op::dispatch_wait && half.index == 0) act_();
  }

 private:
  std::function<void()> act_;
};

// Returns every rank's error after rank 2 was broken while rows were under way.
std::vector<std::string> after(const std::function<void(LoopbackHub&)>& breaking,
                               Duration stall_timeout, const StepPlan& step_plan, Duration& took) {
  constexpr int kRanks = 4;
  Ranks ranks(kQwen, kRanks, 4);
  ranks.stall_timeout = stall_timeout;
  LoopbackHub hub(kRanks, {.bytes_per_s = 1e7, .latency = milliseconds(1)},
                  LoopbackHub::Time::virtual_time);
  std::vector<std::string> said(kRanks);
  TimePoint broken{};
  std::mutex mutex;
  took = {};
  ranks.run(hub, [&](Player player, int rank) {
    Breaker breaker([&] {
      broken = hub.now();
      breaking(hub);
    });
    ASSERT_TRUE(player.play(0, step_plan).has_value());
    if (rank == 2) player.probe = &breaker;
    const Result<void> played = player.play(1, step_plan);
    if (!played && played.error().code == ErrorCode::lost_rank) said[rank] = played.error().message;
    StepPlan other = step_plan;
    other.parts = 2;
    const Result<void> again = player.play(2, other);  // ends at once, with the same error
    EXPECT_EQ(again.has_value() ? "" : again.error().message, said[rank]);
    const std::lock_guard lock(mutex);
    took = std::max(took, hub.now() - broken);
  });
  return said;
}

void expect_all_named(const std::function<void(LoopbackHub&)>& breaking, Duration stall_timeout,
                      Duration most) {
  for (const Grain& grain : {Grain{}, Grain{4, 1}, Grain{1, 4}, Grain{2, 2}})
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      Duration took{};
      const StepPlan step_plan = {.phase = phase,
                                  .order = &order_named("four-phase"),
                                  .parts = grain.parts,
                                  .waves = grain.waves};
      const auto said = after(breaking, stall_timeout, step_plan, took);
      for (const int rank : {0, 1, 3})
        EXPECT_NE(said[rank].find("rank 2"), std::string::npos) << rank << ": " << said[rank];
      EXPECT_FALSE(said[2].empty());
      EXPECT_LE(took, most);
    }
}

TEST(ExpertParallelFaults, ALostRankEndsThePassOfAllByName) {
  expect_all_named([](LoopbackHub& hub) { hub.lose(2); }, milliseconds(500), milliseconds(50));
}

TEST(ExpertParallelFaults, ASilentRankEndsThePassOfAllWithinTheStallTimeout) {
  expect_all_named([](LoopbackHub& hub) { hub.cut(2, true); }, milliseconds(500),
                   milliseconds(550));
}

// Expects no allocations after the first passes, also for plans that were not played before.
void expect_no_allocations(const ModelCase& model) {
  constexpr int kRanks = 2;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const Ranks ranks(model, kRanks, 4);
    LoopbackHub hub(kRanks, {}, LoopbackHub::Time::real);
    std::barrier together(kRanks);
    int64_t made = -1;
    ranks.run(hub, [&](const Player& player, int rank) {
      const std::array<StepPlan, 4> step_plans = {
          {{.phase = phase, .order = &order_named("four-phase"), .parts = 4},
           {.phase = phase, .order = &order_named("single-batch-combine"), .parts = 2},
           {.phase = phase, .order = &order_named("serial"), .parts = 2, .waves = 4},
           {.phase = phase, .order = &order_named("sglang-decode")}}};
      for (int step = 0; step < 2; ++step)
        EXPECT_TRUE(player.play(step, step_plans[0]).has_value());
      together.arrive_and_wait();
      const int64_t before = num_allocations;
      together.arrive_and_wait();
      for (int step = 2; step < std::ssize(Script::kSteps); ++step)
        HOCKET_CHECK(player.play(step, step_plans[step % 4]).has_value());
      together.arrive_and_wait();
      if (rank == 0) made = num_allocations - before;
      together.arrive_and_wait();
    });
    EXPECT_EQ(made, 0);
  }
}

TEST(ExpertParallelAllocation, AStepAllocatesNothing) {
  expect_no_allocations(kQwen);
  expect_no_allocations(kQwenNext);
  expect_no_allocations(kQwenInt8);
  expect_no_allocations(kQwenInt8Sums);
}

}  // namespace
}  // namespace hocket::testing
