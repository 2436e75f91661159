#include "compute/overlap/fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/check.h"
#include "compute/overlap/search.h"

namespace hocket {
namespace {

// The operations that take longer when rows travel in several messages. Only several parts change
// the last one: it may then add up a row for each expert.
constexpr std::array kOpsOfParts = {Op::dispatch_start, Op::dispatch_wait, Op::experts,
                                    Op::combine_start, Op::combine_wait};
constexpr size_t kNumOpsOfWaves = kOpsOfParts.size() - 1;

// Returns the squared distance of two sizes in octaves.
double apart(int64_t a, int64_t b) {
  const double octaves = std::log2(static_cast<double>(std::max<int64_t>(a, 1)) /
                                   static_cast<double>(std::max<int64_t>(b, 1)));
  return octaves * octaves;
}

}  // namespace

Bucket border_of(const Bucket& bucket) {
  Bucket border = bucket;
  const auto rows = static_cast<unsigned>(std::max(bucket.rows, 1));
  const unsigned above = std::bit_ceil(rows);
  border.rows = static_cast<int>(above >= 4 && rows <= above / 4 * 3 ? above / 4 * 3 : above);
  int64_t keys = kTuning.few_keys;
  while (keys < bucket.kv_tokens / rows) keys *= 4;
  border.kv_tokens = border.rows * keys;
  return border;
}

FittedTimes::FittedTimes(const LayerCounts& layers, std::shared_ptr<const StageModel> prior)
    : layers_(layers), prior_(std::move(prior)), cells_(kTuning.max_cells) {
  HOCKET_CHECK(prior_ != nullptr);
  for (int kind = 0; kind < layers.kinds.num(); ++kind)
    goes_with_keys_[index_of({Op::attn_core, kind})] = reads_keys(layers.kinds.kind(kind));
}

int FittedTimes::num_learned(const Bucket& bucket, size_t quantity) const {
  const auto cell = std::ranges::find(cells_, border_of(bucket), &Cell::border);
  return cell == cells_.end() ? 0 : cell->medians[quantity].count();
}

// Returns the bucket's cell; if there is none, the one that was used longest ago begins again for
// it.
FittedTimes::Cell& FittedTimes::cell_for(const Bucket& bucket) {
  auto cell = std::ranges::find(cells_, border_of(bucket), &Cell::border);
  if (cell == cells_.end()) {
    cell = std::ranges::min_element(cells_, {}, &Cell::last_used);
    *cell = {.border = border_of(bucket), .centre = bucket, .prior = prior_at(bucket)};
  }
  cell->last_used = ++clock_;
  return *cell;
}

// Returns the prior's times; 0: it knows none.
FittedTimes::Values FittedTimes::prior_at(const Bucket& bucket) const {
  Values values{};
  const StageTimes times = prior_->at(bucket);
  std::ranges::copy(times.compute, values.begin());
  values[kPart] = times.part_us, values[kWave] = times.wave_us;
  values[kSpread] = times.spread_us;
  values[kDispatch] = times.dispatch.busy_us, values[kCombine] = times.combine.busy_us;
  return values;
}

// Returns the value that medians are divided by. Where the prior knows none, transfers and the cost
// of more copies go with rows, and all else is constant.
double FittedTimes::shape(const Values& prior, const Bucket& bucket, size_t quantity) {
  return prior[quantity] > 0 ? prior[quantity] : quantity >= kSpread ? bucket.rows : 1;
}

// A cell's ratio counts by the inverse fourth power of its distance in octaves, and the more the
// more steps it has:
//
//   asked: 24 rows      cell of 16 rows        cell of 64 rows
//   octaves away        0.58                   1.42
//   weight              6.5                    0.24              1 / (min_distance + octaves^2)^2
FittedTimes::Values FittedTimes::values(const Bucket& bucket) const {
  Values values = prior_at(bucket), sums{}, weights{};
  for (const Cell& cell : cells_) {
    if (cell.last_used == 0 || cell.border.phase != bucket.phase) continue;
    const double rows = kTuning.min_distance + apart(bucket.rows, cell.centre.rows);
    const double keys = rows + apart(bucket.kv_tokens, cell.centre.kv_tokens);
    for (size_t i = 0; i < kNumFitted; ++i) {
      const int count = cell.medians[i].count();
      if (count == 0) continue;
      const double near = goes_with_keys_[i] ? keys : rows;
      const double weight = count / (near * near * (count + 1.0));
      sums[i] += weight * cell.medians[i].median() / shape(cell.prior, cell.centre, i);
      weights[i] += weight;
    }
  }
  for (size_t i = 0; i < kNumFitted; ++i)
    if (weights[i] > 0) values[i] = shape(values, bucket, i) * sums[i] / weights[i];
  return values;
}

// Returns the values of one layer, summed over all halves; -1: not measured.
FittedTimes::Values FittedTimes::measured_of(const StepReport& step) const {
  Values measured{};
  for (size_t i = 0; i < kNumStages; ++i) {
    const double num = layers_.count(stage_at(i));
    measured[i] = num > 0 ? step.compute_us[i] / num : -1;
  }
  const double num_moe = layers_.num_moe;
  const auto travel = [&](float us) { return num_moe > 0 && us > 0 ? us / num_moe : -1; };
  measured[kOther] = measured[kPart] = measured[kWave] = measured[kSpread] = -1;
  measured[kDispatch] = travel(step.dispatch_busy_us);
  measured[kCombine] = travel(step.combine_busy_us);
  return measured;
}

// Where arrivals are noticed late, the reported transfer time also holds what was computed before
// this rank looked. So such a step counts only if the rank waited for half of that time or more
// (then it did notice the arrival), if it reports less than what is known, or if nothing is known.
void FittedTimes::judge_links(const StepReport& step, const Values& known, bool is_known,
                              Values& measured) {
  const bool is_seen =
      step.is_exact != 0 ||
      step.exposed_us >= kTuning.seen_share * (step.dispatch_busy_us + step.combine_busy_us);
  for (const size_t i : {kDispatch, kCombine}) {
    if (!is_known || measured[i] < 0 || known[i] <= 0) continue;
    if (!is_seen && measured[i] >= known[i]) {
      measured[i] = -1;
    } else if (watches_[i - kDispatch].add(measured[i] / known[i]) > 0) {
      ++num_link_shifts_;
      for (Cell& cell : cells_) cell.medians[i].clear();
    }
  }
}

// Removes the cost of the parts and waves beyond the first from `measured`. Where the times of rows
// in one message are known (`expected`), the excess over them becomes the cost of a part and of a
// wave, in the ratio in which they are expected. Where parts also add copies of rows, whose cost is
// the same in any number of parts, two parts teach this cost, and more of them both:
//
//   known                           a part costs 10 us, the copies 50 us
//   2 parts, excess 80 us           the copies cost 80 - 10 = 70 us
//   4 parts then, excess 130 us     30 + 70 us were expected: the copies cost 91 us, a part 13 us
void FittedTimes::subtract_part_costs(Values& measured, const Values& expected, bool is_known,
                                      const GrainOfRows& rows) {
  const Grain& grain = rows.grain;
  const double more_parts = grain.parts - 1, more_waves = grain.parts * (grain.waves - 1);
  double excess = 0;
  for (const Op op :
       std::span(kOpsOfParts).first(grain.parts > 1 ? kOpsOfParts.size() : kNumOpsOfWaves)) {
    double& time = measured[static_cast<size_t>(op)];
    excess += std::max(time, 0.0) - expected[static_cast<size_t>(op)];
    time = is_known ? -1 : time / (1 + kTuning.part_share * (more_parts + more_waves));
  }
  if (!is_known) return;
  const double of_parts = more_parts * expected[kPart], of_waves = more_waves * expected[kWave];
  const double part_share = of_parts + of_waves > 0 ? of_parts / (of_parts + of_waves)
                                                    : more_parts / (more_parts + more_waves);
  excess = std::max(excess, 0.0);
  if (rows.is_spread && grain.parts == 2) {
    measured[kSpread] = std::max(excess - of_parts - of_waves, 0.0);
    if (measured[kSpread] > 0) return;
  } else if (rows.is_spread) {
    const double known = of_parts + of_waves + expected[kSpread];
    measured[kSpread] = known > 0 ? excess * expected[kSpread] / known : 0;
    excess -= measured[kSpread];
  }
  if (more_parts > 0) measured[kPart] = excess * part_share / more_parts;
  if (more_waves > 0) measured[kWave] = excess * (1 - part_share) / more_waves;
}

// Learns one half (or a whole step). Values below 0 were not measured. The others are scaled to the
// centre of the cell before they enter its median.
void FittedTimes::learn(const Bucket& bucket, const Values& measured) {
  Cell& cell = cell_for(bucket);
  const Values prior = prior_at(bucket);
  for (size_t i = 0; i < kNumFitted; ++i) {
    if (measured[i] < 0) continue;
    const double scale = shape(cell.prior, cell.centre, i) / shape(prior, bucket, i);
    cell.medians[i].add(static_cast<float>(measured[i] * scale));
  }
}

// A step in two halves teaches the sizes of both; its times are divided as the known ones are:
//
//   experts, known      16 rows: 100 us    48 rows: 220 us    together 320 us
//   experts, measured                                         together 400 us
//   learned             16 rows: 125 us    48 rows: 275 us
void FittedTimes::note(const StepReport& step, const Plan& plan, int num_halves) {
  if (step.is_valid == 0 || step.rows == 0 || step.phase >= kNumPhases) return;
  const Bucket whole{static_cast<Phase>(step.phase), static_cast<int>(step.rows), step.kv_tokens};
  const auto cut = num_halves == 2 ? halves_of(whole, plan.share, 1) : std::nullopt;
  const std::array<Bucket, 2> halves = cut.value_or(std::array{whole, whole});
  const size_t num = cut ? 2 : 1;
  const auto knows = [&](const Bucket& half, size_t quantity) {
    return num_learned(half, quantity) > 0;
  };
  std::array<Values, 2> expected{};
  Values sum{};
  for (size_t i = 0; i < num; ++i) {
    expected[i] = values(halves[i]);
    for (size_t k = 0; k < kNumFitted; ++k) sum[k] += expected[i][k];
  }
  Values all = measured_of(step);
  GrainOfRows rows{plan.grain()};
  if (plan.parts > 1) {
    const StageTimes prior = prior_->at(halves[0]);
    all[kDispatch] /= prior.dispatch.spread, all[kCombine] /= prior.combine.spread;
    rows.is_spread = prior.dispatch.spread > 1 || prior.combine.spread > 1;
  }
  judge_links(step, sum, knows(halves[0], kDispatch) && knows(halves[1], kDispatch), all);
  if (step.latency_us > 0) latency_.add(step.latency_us);
  for (size_t i = 0; i < num; ++i) {
    Values mine = all;
    // Divide the sum among the halves as expected, else by rows.
    const double rows_share = halves[i].rows / static_cast<double>(whole.rows);
    for (size_t k = 0; k < kNumFitted; ++k)
      if (num == 2 && mine[k] >= 0) mine[k] *= sum[k] > 0 ? expected[i][k] / sum[k] : rows_share;
    if (plan.grain().num_waves() > 1)
      subtract_part_costs(mine, expected[i], knows(halves[i], static_cast<size_t>(Op::experts)),
                          rows);
    learn(halves[i], mine);
  }
  // The time of other work belongs to the step as a whole.
  cell_for(whole).medians[kOther].add(step.other_us);
}

StageTimes FittedTimes::at(const Bucket& bucket) const {
  Bucket asked = bucket;
  asked.rows = std::max(asked.rows, 1);
  const Values values = this->values(asked);
  StageTimes times = prior_->at(asked);  // with its latency, until one was measured
  std::copy_n(values.begin(), kNumStages, times.compute.begin());
  times.part_us = values[kPart], times.wave_us = values[kWave];
  times.spread_us = values[kSpread];
  times.dispatch.busy_us = values[kDispatch], times.combine.busy_us = values[kCombine];
  if (latency_.count() > 0)
    times.dispatch.latency_us = times.combine.latency_us = latency_.median();
  return times;
}

double FittedTimes::other_us(const Bucket& bucket) const {
  return values(bucket)[kOther];
}

}  // namespace hocket
