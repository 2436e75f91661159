// Random ranks whose steps overlap. All conclude the same from each agreement and answer every
// request; and if one is lost, in whatever part of a step, all others end with that error.
#include <gtest/gtest.h>

#include <map>

#include "base/log.h"
#include "engine/lockstep/overlapped_rank_testing.h"
#include "policy/scheduler/simulated_events_testing.h"

namespace hocket {
namespace {

using namespace testing;

// The end of the ranks of one seed.
struct RanksOutcome {
  std::vector<std::vector<SeenAgreement>> seen;
  int num_lost = 0;
  std::string problem;
};

std::string text_of(const SeenAgreement& one) {
  return fmt::format("step {} phase {} order {} of {} x {} messages, {} rows, {} passes{}{}{}",
                     one.step, static_cast<int>(one.phase), one.plan.order, one.plan.parts,
                     one.plan.waves, one.rows, one.num_module_passes, one.is_trial ? ", trial" : "",
                     one.overlaps ? ", overlaps" : "", one.ends ? ", ends" : "");
}

RanksOutcome play(const DrawnRanks& drawn) {
  RanksOutcome out;
  out.seen.resize(static_cast<size_t>(drawn.num_ranks));
  std::vector<std::string> problems(out.seen.size());
  std::vector<SentRows> rows(out.seen.size());
  std::atomic<uint32_t> lost{0};
  std::atomic<int> num_lost{0};
  LoopbackHub hub(drawn.num_ranks, {.latency = std::chrono::microseconds(drawn.seed % 300)},
                  LoopbackHub::Time::virtual_time);
  on_ranks(hub, drawn.num_ranks, [&](Transport& end) {
    const auto at = static_cast<size_t>(end.rank());
    OverlappedRank rank(hub, end, drawn, lost, rows[at]);
    rank.run();
    out.seen[at] = rank.seen();
    problems[at] = rank.problem();
    if (rank.error()) {
      ++num_lost;
      if (rank.error()->code != ErrorCode::lost_rank) problems[at] = rank.error()->message;
    } else if (rank.num_answered() != rank.num_requests()) {
      problems[at] =
          fmt::format("{} of {} requests answered", rank.num_answered(), rank.num_requests());
    }
    if (end.now().time_since_epoch() > std::chrono::seconds(10)) problems[at] = "it took too long";
  });
  out.num_lost = num_lost;
  for (const std::string& problem : problems)
    if (!problem.empty()) out.problem = problem;
  // A rank that has got work since its vote agrees twice at once, and notes the second step alone.
  std::map<uint64_t, SeenAgreement> conclusions;
  for (const auto& seen : out.seen)
    for (const SeenAgreement& one : seen) {
      const auto [first, is_new] = conclusions.emplace(one.step, one);
      if (!is_new && first->second != one)
        out.problem = fmt::format("two ranks concluded differently: {} and {}",
                                  text_of(first->second), text_of(one));
    }
  return out;
}

TEST(LockstepSimulationTest, RandomOverlappedRanksAgreeAndALossEndsAll) {
  log::set_level(log::Level::error);
  const auto [first_seed, num_seeds] = seeds_wanted();
  uint64_t num_whole = 0, num_broken = 0, num_steps = 0;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    std::mt19937_64 random(seed);
    DrawnRanks drawn{.seed = seed,
                     .num_ranks = 2 + static_cast<int>(random() % 3),
                     .max_delayed_passes = static_cast<int>(random() % 3)};
    if (random() % 2 == 0) {
      drawn.lost_rank = static_cast<int>(random() % static_cast<uint64_t>(drawn.num_ranks));
      drawn.lost_in = kStepParts[random() % kStepParts.size()];
      drawn.lost_at = 1 + random() % 8;
    }
    const RanksOutcome got = play(drawn);
    ASSERT_EQ(got.problem, "") << "seed " << seed;
    // A step that never came cannot lose a rank; and if a rank is lost in its last one, others may
    // have ended before.
    ASSERT_TRUE(got.num_lost == 0 || drawn.lost_rank >= 0) << "seed " << seed;
    (got.num_lost == 0 ? num_whole : num_broken) += 1;
    num_steps += got.seen[0].size();
  }
  fmt::print("{} seeds: {} whole, {} with a loss, {} steps\n", num_seeds, num_whole, num_broken,
             num_steps);
  log::set_level(log::Level::info);
}

class LockstepLoss : public ::testing::TestWithParam<StepPart> {};
INSTANTIATE_TEST_SUITE_P(Parts, LockstepLoss, ::testing::ValuesIn(kStepParts));

// Each rank is lost in each part of an early step that computes.
TEST_P(LockstepLoss, InAnyPartOfAnOverlappedStepEndsAllRanks) {
  log::set_level(log::Level::error);
  int num_losses = 0;
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (int rank = 0; rank < 3; ++rank) {
      const RanksOutcome got = play(
          {.seed = seed, .num_ranks = 3, .lost_rank = rank, .lost_in = GetParam(), .lost_at = 2});
      EXPECT_EQ(got.problem, "") << seed << ", rank " << rank;
      num_losses += got.num_lost == 3 ? 1 : 0;
    }
  EXPECT_GE(num_losses, 12);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
