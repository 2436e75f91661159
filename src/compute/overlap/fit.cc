#include "compute/overlap/fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "base/check.h"
#include "compute/overlap/fit_cells.h"
#include "compute/overlap/search.h"

namespace hocket {
namespace {

// The largest size must be this multiple of the least, or a line through them means little.
constexpr double kSpread = 2;
// The assumed cost of each part beyond the first until one was measured: this fraction of the time
// of kOpsOfParts.
constexpr double kPartShare = 0.01;

// The operations that take longer when rows travel in several parts.
constexpr std::array kOpsOfParts = {Op::dispatch_start, Op::dispatch_wait, Op::experts,
                                    Op::combine_start};

double log_of(int64_t size) {
  return std::log2(static_cast<double>(std::max<int64_t>(size, 1)));
}

int row_class(int rows) {
  return std::clamp(size_class(rows), 1, kNumRowClasses - 1);
}

// Guesses a line where all points are of about one size: the fraction `floor` of the time is
// constant, the rest is proportional to keys (by_keys) or to rows.
Line guessed_line(const Point& p, bool by_keys, double floor) {
  if (by_keys && p.z > 0) return {.floor = floor * p.y, .b = (1 - floor) * p.y / p.z};
  return {.floor = floor * p.y, .a = (1 - floor) * p.y / std::max(p.x, 1.0)};
}

Bucket centre_of(const Bucket& bucket) {
  return {bucket.phase, static_cast<int>(size_of_class(row_class(bucket.rows))),
          size_of_class(size_class(bucket.kv_tokens))};
}

}  // namespace

int size_class(int64_t size) {
  if (size <= 2) return static_cast<int>(std::max<int64_t>(size, 0));
  const int octave = std::bit_width(static_cast<uint64_t>(size - 1)) - 1;  // 2^octave < size
  return 2 * octave + (size > (int64_t{3} << (octave - 1)) ? 2 : 1);
}

int64_t size_of_class(int of_class) {
  if (of_class <= 2) return of_class;
  return of_class % 2 == 0 ? int64_t{1} << (of_class / 2) : int64_t{3} << (of_class / 2 - 1);
}

struct FittedTimes::State {
  LayerCounts layers;
  std::shared_ptr<const StageModel> prior;
  std::array<PhaseFit, kNumPhases> phases;
  RobustLine dispatch, combine;  // busy time [us] by kilobytes
  FitMedian latency;
  uint64_t clock = 0;

  const PhaseFit& phase(const Bucket& b) const { return phases[static_cast<size_t>(b.phase)]; }
  PhaseFit& phase(const Bucket& b) { return phases[static_cast<size_t>(b.phase)]; }

  FitValues prior_shape(const Bucket& bucket) const;
  FitValues shape(const Bucket& bucket) const;
  double row_ratio(const PhaseFit& fit, size_t quantity, const Bucket& bucket) const;
  double key_ratio(const PhaseFit& fit, const Bucket& bucket) const;
  FitValues values(const Bucket& bucket) const;
  void note(const Bucket& bucket, const FitValues& measured);
  void note_beside(const Bucket& bucket, double measured);
  void note_keys(const Bucket& bucket, double measured, double scale);
  void fit_lines(PhaseFit& fit);
  void note_links(const StepReport& step, double num_transfers);
  double layers_of(Op op) const;
  FitValues measured_of(const StepReport& step) const;
  bool is_known(const Bucket& bucket) const;
  void take_parts_out(FitValues& measured, const FitValues* expected, int more_parts) const;
};

// Returns the prior's times; a value of 0 means that the prior does not know it.
FitValues FittedTimes::State::prior_shape(const Bucket& bucket) const {
  FitValues values{};
  if (prior == nullptr) return values;
  const StageTimes times = prior->at(bucket);
  std::ranges::copy(times.compute, values.begin());
  values[kFitPart] = times.part_us;
  return values;
}

// Returns the values that medians are divided by: the prior's, else those of the lines.
FitValues FittedTimes::State::shape(const Bucket& bucket) const {
  FitValues values = prior_shape(bucket);
  const auto rows = static_cast<double>(bucket.rows), keys = static_cast<double>(bucket.kv_tokens);
  for (size_t i = 0; i < kNumFitted; ++i)
    if (values[i] <= 0) values[i] = phase(bucket).lines[i].at(rows, keys);
  return values;
}

namespace {

// Returns the cell's median divided by the shape; nothing if it has no median or no shape.
std::optional<double> ratio_of(const PhaseFit& fit, int of_class, size_t quantity) {
  const RowFit& cell = fit.rows[static_cast<size_t>(of_class)];
  const FitMedian& median = cell.medians[quantity];
  if (median.count() == 0) return std::nullopt;
  double expected = cell.prior ? (*cell.prior)[quantity] : 0;
  if (expected <= 0)
    expected = fit.lines[quantity].at(static_cast<double>(size_of_class(of_class)), 0);
  return expected > 0 ? std::optional(median.median() / expected) : std::nullopt;
}

}  // namespace

// Returns the factor by which medians around this size differ from the shape. The median of the
// bucket's own class counts more the more steps it has; the nearest classes below and above that
// have a median are weighted by their distance in classes:
//
//   class of rows       32 seen | 48 | 64 asked    | 96 | 128 seen
//   median / shape      r1      |    | (r1 + r2)/2 |    | r2
double FittedTimes::State::row_ratio(const PhaseFit& fit, size_t quantity,
                                     const Bucket& bucket) const {
  const int here = row_class(bucket.rows);
  const auto ratio = [&](int of_class) { return ratio_of(fit, of_class, quantity); };
  const FitMedian& own = fit.rows[static_cast<size_t>(here)].medians[quantity];
  const double trust = own.count() / (own.count() + 1.0);
  const auto mine = own.count() > 0 ? ratio(here) : std::nullopt;
  if (own.count() >= kFitRemembers && mine) return *mine;
  std::optional<double> below, above;
  int low = here - 1, high = here + 1;
  while (low > 0 && !(below = ratio(low))) --low;
  while (high < kNumRowClasses && !(above = ratio(high))) ++high;
  double around = 1;
  if (below && above)
    around = (*below * (high - here) + *above * (here - low)) / (high - low);
  else if (below || above)
    around = below ? *below : *above;
  else
    return mine.value_or(1);
  return mine ? trust * *mine + (1 - trust) * around : around;
}

// The same for attention, which is known by rows and keys: a mean of the ratios of all cells,
// weighted by the inverse fourth power of their distance in log2 of rows and keys.
double FittedTimes::State::key_ratio(const PhaseFit& fit, const Bucket& bucket) const {
  const double log_rows = log_of(bucket.rows), log_keys = log_of(bucket.kv_tokens);
  double sum = 0, weights = 0;
  for (const KeyFit& cell : fit.keys) {
    if (cell.median.count() == 0) continue;
    const double expected = shape({bucket.phase, static_cast<int>(size_of_class(cell.rows)),
                                   size_of_class(cell.keys)})[kFitAttnCore];
    if (expected <= 0) continue;
    const double rows = log_rows - cell.log_rows, keys = log_keys - cell.log_keys;
    const double near = 1 / (0.05 + rows * rows + keys * keys);
    const double weight = near * near * cell.median.count() / (cell.median.count() + 1.0);
    sum += weight * cell.median.median() / expected, weights += weight;
  }
  return weights > 0 ? sum / weights : 1;
}

FitValues FittedTimes::State::values(const Bucket& bucket) const {
  const PhaseFit& fit = phase(bucket);
  FitValues values = shape(bucket);
  if (values[kFitPart] <= 0)
    for (const Op op : kOpsOfParts)
      values[kFitPart] += kPartShare * values[static_cast<size_t>(op)];
  for (size_t i = 0; i < kNumFitted; ++i)
    if (values[i] > 0)
      values[i] *= i == kFitAttnCore ? key_ratio(fit, bucket) : row_ratio(fit, i, bucket);
  return values;
}

void FittedTimes::State::note_keys(const Bucket& bucket, double measured, double scale) {
  PhaseFit& fit = phase(bucket);
  const int rows = row_class(bucket.rows), keys = size_class(bucket.kv_tokens);
  auto cell = std::ranges::find_if(fit.keys, [&](const KeyFit& c) {
    return c.median.count() > 0 && c.rows == rows && c.keys == keys;
  });
  if (cell == fit.keys.end()) {  // a free cell, else the one that was used longest ago
    cell = std::ranges::min_element(fit.keys, {}, &KeyFit::last_used);
    *cell = {.rows = rows,
             .keys = keys,
             .log_rows = log_of(size_of_class(rows)),
             .log_keys = log_of(size_of_class(keys)),
             .prior = prior_shape(centre_of(bucket))[kFitAttnCore]};
  }
  cell->last_used = ++clock;
  cell->median.add(static_cast<float>(measured * scale));
}

// Learns one half (or a whole step). Values below 0 were not measured. The other values are scaled
// to the largest size of the class before they enter its median.
void FittedTimes::State::note(const Bucket& bucket, const FitValues& measured) {
  PhaseFit& fit = phase(bucket);
  RowFit& cell = fit.rows[static_cast<size_t>(row_class(bucket.rows))];
  const Bucket middle = centre_of(bucket);
  const FitValues here = shape(bucket), centre = shape(middle);
  if (prior != nullptr && !cell.prior) cell.prior = prior_shape(middle);
  for (size_t i = 0; i < kNumFitted; ++i) {
    if (measured[i] < 0) continue;
    const double scale = here[i] > 0 && centre[i] > 0 ? centre[i] / here[i] : 1;
    if (i == kFitAttnCore)
      note_keys(bucket, measured[i], scale);
    else
      cell.medians[i].add(static_cast<float>(measured[i] * scale));
  }
  ++cell.num_seen;
  ++fit.num_seen;
  fit_lines(fit);
}

// The time beside the layers belongs to the step as a whole, so it is noted by the rows of all
// halves.
void FittedTimes::State::note_beside(const Bucket& bucket, double measured) {
  PhaseFit& fit = phase(bucket);
  fit.rows[static_cast<size_t>(row_class(bucket.rows))].medians[kFitBeside].add(
      static_cast<float>(measured));
}

void FittedTimes::State::fit_lines(PhaseFit& fit) {
  std::array<Point, std::max(kNumRowClasses, kNumKeyCells)> points{};
  for (size_t quantity = 0; quantity < kNumFitted; ++quantity) {
    size_t num = 0;
    const auto add = [&](double rows, double keys, const FitMedian& median) {
      if (median.count() > 0 && median.median() > 0) points[num++] = {rows, keys, median.median()};
    };
    if (quantity == kFitAttnCore) {
      for (const KeyFit& c : fit.keys)
        add(static_cast<double>(size_of_class(c.rows)), static_cast<double>(size_of_class(c.keys)),
            c.median);
    } else {
      for (int i = 1; i < kNumRowClasses; ++i)
        add(static_cast<double>(size_of_class(i)), 0,
            fit.rows[static_cast<size_t>(i)].medians[quantity]);
    }
    Line& line = fit.lines[quantity];
    if (num == 0) continue;
    const auto seen = std::span(points).first(num);
    const auto apart = [&](auto member) {
      const auto [least, most] = std::ranges::minmax_element(seen, {}, member);
      return std::invoke(member, *most) >= kSpread * std::invoke(member, *least);
    };
    if (apart(&Point::x) || (quantity == kFitAttnCore && apart(&Point::z)))
      line = line_through(seen, quantity != kFitAttnCore);
    else
      line =
          guessed_line(seen.back(), quantity == kFitAttnCore, quantity >= kFitDispatchKb ? 0 : 0.5);
  }
}

// Where arrivals are noticed late, the reported transfer time also holds what was computed before
// this rank looked. So such a step counts only if the rank waited for half of that time or more
// (then it did notice the arrival), if it reports less than what is known, or if nothing is known.
void FittedTimes::State::note_links(const StepReport& step, double num_transfers) {
  const bool is_seen = step.is_exact != 0 ||
                       step.exposed_us >= 0.5F * (step.dispatch_busy_us + step.combine_busy_us);
  const auto note = [&](RobustLine& line, float kb, float busy_us) {
    const double x = kb / num_transfers, y = busy_us / num_transfers;
    if (x > 0 && y > 0 && (is_seen || line.count() == 0 || y < line.at(x))) line.add(x, y);
  };
  note(dispatch, step.dispatch_kb, step.dispatch_busy_us);
  note(combine, step.combine_kb, step.combine_busy_us);
}

double FittedTimes::State::layers_of(Op op) const {
  if (op == Op::mlp) return layers.num_dense;
  if (op == Op::attn_in || op == Op::attn_core) return layers.num_layers();
  return layers.num_moe;
}

// Returns the values of one layer, summed over all halves; -1: not measured.
FitValues FittedTimes::State::measured_of(const StepReport& step) const {
  FitValues measured{};
  for (size_t i = 0; i < kNumOps; ++i) {
    const double num = layers_of(static_cast<Op>(i));
    measured[i] = num > 0 ? static_cast<double>(step.compute_us[i]) / num : -1;
  }
  measured[kFitBeside] = measured[kFitPart] = -1;
  const bool travels = layers.num_moe > 0 && step.dispatch_kb > 0 && step.combine_kb > 0;
  measured[kFitDispatchKb] = travels ? step.dispatch_kb / layers.num_moe : -1;
  measured[kFitCombineKb] = travels ? step.combine_kb / layers.num_moe : -1;
  return measured;
}

// True if the experts of a half of this size were ever measured.
bool FittedTimes::State::is_known(const Bucket& bucket) const {
  const RowFit& cell = phase(bucket).rows[static_cast<size_t>(row_class(bucket.rows))];
  return cell.medians[static_cast<size_t>(Op::experts)].count() > 0;
}

// Removes the cost of the parts beyond the first from `measured`. `expected` holds the times of
// rows in one message; the excess over them becomes the cost of a part. If it is null, these times
// are not known and a guessed share is removed.
void FittedTimes::State::take_parts_out(FitValues& measured, const FitValues* expected,
                                        int more_parts) const {
  double sum = 0, known = 0;
  for (const Op op : kOpsOfParts) {
    double& time = measured[static_cast<size_t>(op)];
    sum += std::max(time, 0.0);
    if (expected != nullptr) {
      known += (*expected)[static_cast<size_t>(op)];
      time = -1;
    } else {
      time /= 1 + kPartShare * more_parts;
    }
  }
  if (expected != nullptr) measured[kFitPart] = std::max(sum - known, 0.0) / more_parts;
}

FittedTimes::FittedTimes(const LayerCounts& layers, std::shared_ptr<const StageModel> prior)
    : state_(std::make_unique<State>()) {
  state_->layers = layers;
  state_->prior = std::move(prior);
}

FittedTimes::FittedTimes(FittedTimes&&) noexcept = default;
FittedTimes& FittedTimes::operator=(FittedTimes&&) noexcept = default;
FittedTimes::~FittedTimes() = default;

void FittedTimes::note(const StepReport& step, const Plan& plan, int num_halves) {
  if (step.is_valid == 0 || step.rows == 0 || step.phase >= kNumPhases) return;
  State& s = *state_;
  const Bucket whole{static_cast<Phase>(step.phase), static_cast<int>(step.rows), step.kv_tokens};
  const auto cut = num_halves == 2 ? halves_of(whole, plan.share, 1) : std::nullopt;
  const std::array<Bucket, 2> halves = cut.value_or(std::array{whole, whole});
  const int num = cut ? 2 : 1;
  std::array<FitValues, 2> expected{};
  for (size_t i = 0; i < static_cast<size_t>(num); ++i) expected[i] = s.values(halves[i]);

  const FitValues all = s.measured_of(step);
  if (all[kFitDispatchKb] > 0) s.note_links(step, s.layers.num_moe * static_cast<double>(num));
  if (step.latency_us > 0) s.latency.add(step.latency_us);
  s.note_beside(whole, step.beside_us);
  for (size_t i = 0; i < static_cast<size_t>(num); ++i) {
    const double rows_share = halves[i].rows / static_cast<double>(whole.rows);
    FitValues mine = all;
    // Divide the sum among the halves as expected, else by rows.
    for (size_t k = 0; k < kNumFitted; ++k) {
      if (num == 1 || mine[k] < 0) continue;
      const double sum = expected[0][k] + expected[1][k];
      mine[k] *= sum > 0 ? expected[i][k] / sum : rows_share;
    }
    if (plan.parts > 1)
      s.take_parts_out(mine, s.is_known(halves[i]) ? &expected[i] : nullptr, plan.parts - 1);
    s.note(halves[i], mine);
  }
}

StageTimes FittedTimes::at(const Bucket& bucket) const {
  const State& s = *state_;
  Bucket asked = bucket;
  asked.rows = std::max(asked.rows, 1);
  const FitValues values = s.values(asked);
  StageTimes times;
  std::copy_n(values.begin(), kNumOps, times.compute.begin());
  times.part_us = values[kFitPart];
  if (s.prior != nullptr) {
    const StageTimes before = s.prior->at(asked);
    times.dispatch = before.dispatch, times.combine = before.combine;
  }
  if (s.dispatch.count() > 0) times.dispatch.busy_us = s.dispatch.at(values[kFitDispatchKb]);
  if (s.combine.count() > 0) times.combine.busy_us = s.combine.at(values[kFitCombineKb]);
  if (s.latency.count() > 0)
    times.dispatch.latency_us = times.combine.latency_us = s.latency.median();
  return times;
}

double FittedTimes::beside_us(const Bucket& bucket) const {
  return state_->values(bucket)[kFitBeside];
}

int FittedTimes::num_seen(const Bucket& bucket) const {
  return state_->phase(bucket).rows[static_cast<size_t>(row_class(bucket.rows))].num_seen;
}

int FittedTimes::num_seen(Phase phase) const {
  return state_->phases[static_cast<size_t>(phase)].num_seen;
}

uint32_t FittedTimes::num_link_shifts() const {
  return state_->dispatch.num_shifts() + state_->combine.num_shifts();
}

}  // namespace hocket
