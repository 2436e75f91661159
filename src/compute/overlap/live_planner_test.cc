// Plays what the planner chooses over a real exchange in virtual time, on ranks whose times differ
// in ways that it is not told. Predictions assume equal ranks, so only its measurements can help.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "compute/comm/testing.h"
#include "compute/overlap/served_testing.h"
#include "compute/overlap/spent_testing.h"
#include "compute/overlap/stage_player_testing.h"

namespace hocket {
namespace {

using testing::StageMachine;

constexpr LayerCounts kPlayedLayers{
    .num_dense = 1, .num_moe = 4, .has_shared = true, .other_us = 500};
constexpr double kMaxPlayedBytes = 16 << 10;  // those of the longest transfer

// A rank of a machine that computes more slowly, or has more than its share of the experts' rows.
class UnequalRank final : public StageModel {
 public:
  UnequalRank(const StageMachine& machine, double slowness, double skew)
      : machine_(machine), slowness_(slowness), skew_(skew) {}
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times = machine_.at(bucket);
    for (double& time : times.compute) time *= slowness_;
    for (const Op op : {Op::experts, Op::dispatch_wait, Op::combine_start}) times.of(op) *= skew_;
    times.dispatch.busy_us *= skew_, times.combine.busy_us *= skew_;
    return times;
  }

 private:
  const StageMachine& machine_;
  const double slowness_, skew_;
};

class UnequalRanks {
 public:
  UnequalRanks(std::vector<UnequalRank> ranks, const Bucket& bucket, double latency_us)
      : ranks_(std::move(ranks)), bucket_(bucket), latency_us_(latency_us) {}

  // Returns the reports of all ranks on a step by this plan. It is played once.
  const std::vector<StepReport>& reports_of(const Plan& plan) {
    std::vector<StepReport>& reports = reports_[static_cast<uint32_t>(id_of(plan))];
    if (!reports.empty()) return reports;
    const double step_us = play(plan) + kPlayedLayers.other_us;
    for (const UnequalRank& rank : ranks_) {
      reports.push_back(testing::report_of(step_of(rank), plan, [](double us) { return us; }));
      reports.back().step_us = static_cast<float>(step_us);
    }
    return reports;
  }
  double step_us(const Plan& plan) { return reports_of(plan)[0].step_us; }

 private:
  SearchInput step_of(const UnequalRank& rank) const {
    return {
        .model = rank, .orders = OrderTable::builtin(), .layers = kPlayedLayers, .bucket = bucket_};
  }
  std::vector<StageTimes> halves_of_rank(const UnequalRank& rank, const Plan& plan) const {
    if (OrderTable::builtin().at(plan.order).num_halves == 1) return {rank.at(bucket_)};
    const auto halves = halves_of(bucket_, plan.share, 1);
    return {rank.at(halves->at(0)), rank.at(halves->at(1))};
  }
  // Returns the time of the slowest rank.
  double play(const Plan& plan) const {
    double longest_us = 0;
    for (const UnequalRank& rank : ranks_)
      for (const StageTimes& half : halves_of_rank(rank, plan))
        for (const TransferTime& transfer : {half.dispatch, half.combine})
          longest_us = std::max(longest_us, transfer.busy_in(plan.grain().num_waves()));
    const double bytes_per_s = kMaxPlayedBytes / longest_us * 1e6;
    const int num_ranks = static_cast<int>(ranks_.size());
    LoopbackHub hub(num_ranks,
                    {.bytes_per_s = bytes_per_s, .latency = from_seconds(latency_us_ * 1e-6)},
                    LoopbackHub::Time::virtual_time);
    std::vector<double> took(ranks_.size());
    testing::on_ranks(hub, num_ranks, [&](Transport& end) {
      const auto at = static_cast<size_t>(end.rank());
      const std::vector<StageTimes> halves = halves_of_rank(ranks_[at], plan);
      testing::SpentTimes work(hub, end.rank());
      auto player = StagePlayer::create(
          end,
          {.layers = kPlayedLayers, .bytes_per_s = bytes_per_s, .longest_busy_us = longest_us});
      ASSERT_TRUE(player.has_value());
      ASSERT_TRUE((*player)->play(
          {.order = OrderTable::builtin().at(plan.order), .halves = halves, .grain = plan.grain()},
          work));
      work.spend_rest();
      took[at] = to_us(end.now().time_since_epoch());
    });
    return std::ranges::max(took);
  }

  const std::vector<UnequalRank> ranks_;
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
  constexpr double kSlowness[] = {1, 1.3, 2}, kSkews[] = {1, 1.5};
  constexpr int kPoints = 6;
  const FakeClock clock;
  double sum = 0, worst = 0;
  for (int round = 0; round < kPoints; ++round) {
    const auto even = std::make_shared<StageMachine>();
    even->link_gbit = one_of(kGbit), even->weights_share = one_of(kWeights);
    const Phase phase = random() % 2 == 0 ? Phase::decode : Phase::prefill;
    const int rows = one_of(kRows);
    const Bucket bucket{phase, rows, rows * 500};
    const int num_ranks = one_of(kRanks);
    std::vector<UnequalRank> ranks;
    ranks.emplace_back(*even, one_of(kSlowness), one_of(kSkews));
    for (int rank = 1; rank < num_ranks; ++rank) ranks.emplace_back(*even, 1, 1);
    UnequalRanks service(std::move(ranks), bucket, even->latency_us);
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
    sum += regret, worst = std::max(worst, regret);
  }
  fmt::print("unequal ranks: {:.2f} % slower than the best on average, {:.2f} % at worst\n",
             100 * sum / kPoints, 100 * worst);
  EXPECT_LE(sum / kPoints, 0.02);
}

}  // namespace
}  // namespace hocket
