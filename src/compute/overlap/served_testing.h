// A made-up server for tests: a machine with links, whose steps take the predicted time plus noise.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compute/overlap/planner.h"
#include "compute/overlap/search.h"

namespace hocket::testing {

// A machine with links; its operations take a time for reading weights and a time per row.
class StageMachine final : public StageModel {
 public:
  double link_gbit = 10, latency_us = 20;
  double level = 1;          // factor for all times of the cores
  double weights_share = 0;  // part of the experts' time at 64 rows that is the same for any rows
  // The copies of a row in several parts, as a multiple of those in one, and the cores' time for
  // the copies that this adds.
  double spread = 1, spread_us = 0;

  StageTimes at(const Bucket& bucket) const override {
    const double rows = bucket.rows, keys = static_cast<double>(bucket.kv_tokens);
    StageTimes times;
    times.of(Op::attn_in) = 60 + 2 * rows;
    times.of(Op::attn_core) = 10 + 0.5 * rows + 0.001 * keys;
    times.of(Op::mlp) = 100 + 2 * rows;
    times.of(Op::gate) = 5 + 0.1 * rows;
    times.of(Op::shared) = 20 + 0.3 * rows;
    times.of(Op::experts) = 400 * weights_share + 400 * (1 - weights_share) * rows / 64;
    for (const Op op : {Op::dispatch_start, Op::dispatch_wait, Op::combine_start, Op::combine_wait})
      times.of(op) = 3 + 0.1 * rows;
    for (double& time : times.compute) time *= level;
    times.dispatch = times.combine = {kb(rows) * 8 / link_gbit, latency_us, spread};
    times.part_us = 8 * level;
    times.wave_us = 4 * level;
    times.spread_us = spread_us * level;
    return times;
  }
  static double kb(double rows) { return 0.1 + rows * 6; }
};

// A prior that knows nothing of the machine: half of each time is constant at 50 rows.
class UninformedPrior final : public StageModel {
 public:
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times;
    times.compute.fill(50 + bucket.rows);
    times.of(Op::attn_core) += 0.001 * static_cast<double>(bucket.kv_tokens);
    times.dispatch = times.combine = {10.0 * bucket.rows, 10};
    times.part_us = 5;
    times.wave_us = 5;
    return times;
  }
};

inline constexpr LayerCounts kServedLayers{.num_dense = 1, .num_moe = 24, .has_shared = true};
inline constexpr double kOtherUs = 500;

// Returns the report of a rank that has the times of step.model and sends as many bytes as a
// StageMachine, without the time of the step. The cost of parts is booked in `experts`, and that of
// rows that travel for each expert in `combine_wait`, which adds them up. noisy(us) returns a time
// as it was measured.
template <class Noisy>
StepReport report_of(const SearchInput& step, const Plan& plan, const Noisy& noisy) {
  const auto add = [](float& sum, double more) { sum += static_cast<float>(more); };
  const bool is_cut = step.orders.at(plan.order).num_halves == 2;
  const auto cut = is_cut ? halves_of(step.bucket, plan.share, 1) : std::nullopt;
  StepReport report;
  report.plan = static_cast<uint32_t>(id_of(plan));
  report.rows = static_cast<uint32_t>(step.bucket.rows);
  report.kv_tokens = static_cast<uint32_t>(step.bucket.kv_tokens);
  report.phase = static_cast<uint8_t>(step.bucket.phase);
  report.is_valid = report.is_exact = 1;
  const LayerCounts& layers = step.layers;
  for (const Bucket& half :
       cut ? std::vector(cut->begin(), cut->end()) : std::vector{step.bucket}) {
    const StageTimes times = step.model.at(half);
    for (size_t i = 0; i < layers.kinds.num_stages(); ++i) {
      const Stage stage = stage_at(i);
      const double count = layers.count(stage);
      const double spread_us = plan.parts > 1 ? times.spread_us : 0;
      double added_us = stage.op == Op::combine_wait ? spread_us : 0;
      if (stage.op == Op::experts) {
        added_us = -spread_us;
        for (int wave = 0; wave < plan.grain().num_waves(); ++wave)
          added_us += times.added_us(plan.grain(), wave);
      }
      add(report.compute_us[i], noisy(count * (times.compute[i] + added_us)));
    }
    add(report.dispatch_busy_us, noisy(layers.num_moe * times.dispatch.busy_in(plan.grain())));
    add(report.combine_busy_us, noisy(layers.num_moe * times.combine.busy_in(plan.grain())));
    add(report.dispatch_kb, layers.num_moe * StageMachine::kb(half.rows));
    add(report.combine_kb, layers.num_moe * StageMachine::kb(half.rows));
    report.latency_us = static_cast<float>(times.dispatch.latency_us);
  }
  report.other_us = static_cast<float>(noisy(layers.other_us));
  return report;
}

class Server {
 public:
  Server(const StageModel& machine, const Planner::Options& options, double noise,
         uint32_t seed = 1)
      : machine_(machine), options_(options), noise_(noise), random_(seed), planner_(options) {}

  // Plays a step of this size by the planner's plan and reports it. As on real ranks, the planner
  // chooses plans for both phases before the phase of the step is known, and it gets the report on
  // a step after it has chosen the next plan.
  void step(const Bucket& bucket) {
    Bucket other = bucket;
    other.phase = bucket.phase == Phase::decode ? Phase::prefill : Phase::decode;
    const Planner::Choice choice = planner_.choose(bucket);
    if (asks_both) planner_.choose(other);
    if (heard_) planner_.note(std::span(&*heard_, 1));
    heard_ = played(bucket, choice.plan);
    is_trial_.push_back(choice.is_trial);
    plan_ = choice.plan;
    if (const auto line = planner_.take_log_line()) log_lines.push_back(line->text);
    all_us += heard_->step_us;
  }

  SearchInput truth(const Bucket& bucket) const {
    LayerCounts layers = options_.layers;
    layers.other_us = other_us;
    return {.model = machine_, .orders = *options_.orders, .layers = layers, .bucket = bucket};
  }
  double true_us(const Bucket& bucket, const Plan& plan) const {
    return predict_plan(truth(bucket), plan).step_us;
  }
  StepReport played(const Bucket& bucket, const Plan& plan) {
    const Prediction took = predict_plan(truth(bucket), plan);
    StepReport report = report_of(truth(bucket), plan, [this](double us) { return noisy(us); });
    report.exposed_us = static_cast<float>(took.exposed_us);
    const bool lies = kind_of(plan, *options_.orders) == PlanKind::two_batch;
    report.step_us = static_cast<float>(noisy(took.step_us * (lies ? lie : 1)));
    return report;
  }
  // Forgets the trials that were played so far.
  void forget_trials() { is_trial_.clear(); }
  // Returns the largest number of steps of trials in any `window` steps in a row.
  int64_t max_trial_steps_of(int64_t window) const {
    int64_t most = 0, now = 0;
    for (int64_t i = 0; i < std::ssize(is_trial_); ++i) {
      now += is_trial_[i] ? 1 : 0;
      if (i >= window) now -= is_trial_[i - window] ? 1 : 0;
      most = std::max(most, now);
    }
    return most;
  }
  // Returns the plan that is played apart from trials.
  Plan plan_now(const Bucket& bucket) {
    Planner::Choice choice = planner_.choose(bucket);
    if (choice.is_trial) choice = planner_.choose(bucket);
    return choice.plan;
  }
  uint64_t num_changes() const {
    uint64_t sum = 0;
    for (const OverlapDecision& d : planner_.state().decisions) sum += d.num_changes;
    return sum;
  }
  Planner& planner() { return planner_; }

  double other_us = kOtherUs;
  double lie = 1;  // factor by which steps in two halves take longer than they should
  bool asks_both = false;
  double all_us = 0;
  std::vector<std::string> log_lines;

 private:
  double noisy(double us) {
    std::normal_distribution<double> draw(1, noise_);
    return us * std::max(draw(random_), 0.2);
  }

  const StageModel& machine_;
  const Planner::Options options_;
  const double noise_;
  std::mt19937 random_;
  std::optional<StepReport> heard_;
  std::deque<bool> is_trial_;
  Plan plan_;
  Planner planner_;
};

}  // namespace hocket::testing
