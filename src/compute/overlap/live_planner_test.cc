// Plays what the planner chooses over a real exchange in virtual time, on ranks whose times differ
// in ways that it is not told. Predictions assume equal ranks, so only its measurements can help.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/clock_testing.h"
#include "compute/comm/testing.h"
#include "compute/overlap/served_testing.h"
#include "compute/overlap/spent_testing.h"
#include "compute/overlap/stage_player_testing.h"
#include "compute/overlap/unequal_ranks_testing.h"

namespace hocket {
namespace {

using testing::StageMachine;

constexpr LayerCounts kPlayedLayers{
    .num_dense = 1, .num_moe = 4, .has_shared = true, .other_us = 500};
constexpr double kMaxPlayedBytes = 16 << 10;  // those of the longest transfer

// Plays each plan once, and remembers what the ranks reported on it.
class PlayedRanks {
 public:
  PlayedRanks(const StageMachine& even, const UnequalRanks& ranks, const Bucket& bucket)
      : ranks_(ranks), bucket_(bucket), latency_us_(even.latency_us) {}

  const std::vector<StepReport>& reports_of(const Plan& plan) {
    std::vector<StepReport>& reports = reports_[static_cast<uint32_t>(id_of(plan))];
    if (reports.empty())
      reports = ranks_.reports(plan, bucket_, play(plan) + kPlayedLayers.other_us);
    return reports;
  }
  double step_us(const Plan& plan) { return reports_of(plan)[0].step_us; }
  // Returns how far the recurrence is from what was played, on average over the plans, as a share.
  double mean_error() const {
    double sum = 0;
    for (const auto& [id, reports] : reports_) {
      const Plan plan = *plan_of(PlanId{id}, OrderTable::builtin());
      sum += std::abs(ranks_.step_us(plan, bucket_) / reports[0].step_us - 1);
    }
    return sum / static_cast<double>(reports_.size());
  }

 private:
  std::vector<StageTimes> halves_of_rank(const AlikeRanks& rank, const Plan& plan) const {
    if (OrderTable::builtin().at(plan.order).num_halves == 1)
      return {ranks_.times_of(rank, bucket_)};
    const auto halves = halves_of(bucket_, plan.share, 1);
    return {ranks_.times_of(rank, halves->at(0)), ranks_.times_of(rank, halves->at(1))};
  }
  // Returns the time of the slowest rank.
  double play(const Plan& plan) const {
    std::vector<AlikeRanks> each;
    for (const AlikeRanks& alike : ranks_.ranks())
      each.insert(each.end(), static_cast<size_t>(alike.count), alike);
    double longest_us = 0;
    for (const AlikeRanks& rank : each)
      for (const StageTimes& half : halves_of_rank(rank, plan))
        for (const TransferTime& transfer : {half.dispatch, half.combine})
          longest_us = std::max(longest_us, transfer.busy_in(plan.grain()));
    const double bytes_per_s = kMaxPlayedBytes / longest_us * 1e6;
    const int num_ranks = static_cast<int>(each.size());
    LoopbackHub hub(num_ranks,
                    {.bytes_per_s = bytes_per_s, .latency = from_seconds(latency_us_ * 1e-6)},
                    LoopbackHub::Time::virtual_time);
    std::vector<double> took(each.size());
    testing::on_ranks(hub, num_ranks, [&](Transport& end) {
      const auto at = static_cast<size_t>(end.rank());
      const std::vector<StageTimes> halves = halves_of_rank(each[at], plan);
      testing::SpentTimes work(hub, end.rank());
      auto player = StagePlayer::create(end, {.layers = kPlayedLayers,
                                              .bytes_per_s = bytes_per_s,
                                              .longest_busy_us = longest_us,
                                              .loads = ranks_.loads()});
      ASSERT_TRUE(player.has_value());
      ASSERT_TRUE((*player)->play(
          {.order = OrderTable::builtin().at(plan.order), .halves = halves, .grain = plan.grain()},
          work));
      work.spend_rest();
      took[at] = to_us(end.now().time_since_epoch());
    });
    return std::ranges::max(took);
  }

  const UnequalRanks& ranks_;
  const Bucket bucket_;
  const double latency_us_;
  std::map<uint32_t, std::vector<StepReport>> reports_;  // by PlanId
};

// Draws ranks, links, weights, rows and what is wrong with one of the ranks.
TEST(LivePlannerTest, IsNearTheBestWhereRanksAreUnequal) {
  std::mt19937 random(9);
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  constexpr int kRanks[] = {2, 3}, kRows[] = {4, 16, 64};
  constexpr double kGbit[] = {0.3, 1, 4, 25}, kWeights[] = {0, 0.4, 0.9};
  constexpr double kSlowness[] = {1, 1.3, 2}, kLoads[] = {1, 1.5};
  constexpr int kPoints = 6;
  const FakeClock clock;
  double sum = 0, worst = 0, error = 0;
  for (int round = 0; round < kPoints; ++round) {
    const auto even = std::make_shared<StageMachine>();
    even->link_gbit = one_of(kGbit), even->weights_share = one_of(kWeights);
    const Phase phase = random() % 2 == 0 ? Phase::decode : Phase::prefill;
    const int rows = one_of(kRows);
    const Bucket bucket{phase, rows, rows * 500};
    const int num_ranks = one_of(kRanks);
    const double load = one_of(kLoads);
    const UnequalRanks ranks(
        *even, kPlayedLayers,
        {{.slowness = one_of(kSlowness), .load = load},
         {.count = num_ranks - 1, .load = (num_ranks - load) / (num_ranks - 1)}});
    PlayedRanks service(*even, ranks, bucket);
    Planner planner({.orders = &OrderTable::builtin(),
                     .layers = kPlayedLayers,
                     .prior = even,
                     .clock = &clock});
    Planner::Choice choice;
    for (int step = 0; step < 300; ++step) {
      choice = planner.choose(bucket);
      planner.note(service.reports_of(choice.plan));
    }
    while (choice.is_trial) choice = planner.choose(bucket);
    const SearchResult all = search({.model = *even,
                                     .orders = OrderTable::builtin(),
                                     .layers = kPlayedLayers,
                                     .bucket = bucket});
    double best_us = service.step_us({});
    for (const Candidate& candidate : all.candidates)
      best_us = std::min(best_us, service.step_us(candidate.plan));
    const double regret = service.step_us(choice.plan) / best_us - 1;
    EXPECT_LE(regret, 0.05) << "round " << round << ": "
                            << describe(choice.plan, OrderTable::builtin());
    sum += regret, worst = std::max(worst, regret), error += service.mean_error() / kPoints;
  }
  fmt::print("unequal ranks: {:.2f} % slower than the best on average, {:.2f} % at worst\n",
             100 * sum / kPoints, 100 * worst);
  EXPECT_LE(sum / kPoints, 0.02);
  fmt::print("the recurrence of unequal ranks is {:.2f} % off, on average\n", 100 * error);
  EXPECT_LE(error, 0.03);
}

}  // namespace
}  // namespace hocket
