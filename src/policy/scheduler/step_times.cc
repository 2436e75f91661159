#include "policy/scheduler/step_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hocket {
namespace {

constexpr double kKeysOfTerm = 4096;  // this many keys cost about as much as a row
constexpr double kMemory = 0.99;      // weight of one step's knowledge at the next step
constexpr double kErrorRate = 1.0 / 64, kBiasRate = 1.0 / 8;
constexpr double kMinError = 0.01;
constexpr double kMeanToDeviation = 1.25;  // ratio for a normal distribution
constexpr double kMaxDeviations = 3;       // most that one step may count
// Chance makes a mean of eight steps as large as 1.5 mean errors once in 10^5.
constexpr double kBiasOfChange = 1.5;
constexpr double kPriorScale = 4;

double square(double x) {
  return x * x;
}

}  // namespace

StepShape shape_of(const Batch& batch) {
  StepShape shape;
  for (const Slice& slice : batch.slices) {
    const bool decodes = slice.is_sampled && slice.len - slice.num_drafts == 1;
    (decodes ? shape.decode_rows : shape.prefill_rows) += slice.len;
    shape.keys += keys_of_rows(slice.begin, slice.len);
  }
  return shape;
}

StepTimes::Terms StepTimes::terms_of(const StepShape& shape) {
  return {1, static_cast<double>(shape.prefill_rows), static_cast<double>(shape.decode_rows),
          static_cast<double>(shape.keys) / kKeysOfTerm};
}

double StepTimes::us(const Terms& terms) const {
  double sum = 0;
  for (size_t i = 0; i < kNumTerms; ++i) sum += us_[i] * terms[i];
  return sum;
}

// At first each term may be the cause of the whole step, and rows of both kinds may cost the same.
void StepTimes::begin(const Terms& terms, double us) {
  begun_ = true;
  const double row = us / std::max(1.0, terms[1] + terms[2]);
  const Terms most = {us, row, row, row};
  for (size_t i = 0; i < kNumTerms; ++i) covariance_[i][i] = square(kPriorScale * most[i]);
}

void StepTimes::note(const StepShape& shape, Duration took) {
  const double taken = to_us(took);
  if (!(taken > 0)) return;
  const Terms terms = terms_of(shape);
  if (!begun_) begin(terms, taken);
  if (shape.decode_rows > 0) max_beside_decode_ = std::max(max_beside_decode_, shape.prefill_rows);

  Terms towards{};  // covariance_ * terms
  double variance = 0;
  for (size_t i = 0; i < kNumTerms; ++i) {
    for (size_t j = 0; j < kNumTerms; ++j) towards[i] += covariance_[i][j] * terms[j];
    variance += towards[i] * terms[i];
  }
  const double predicted = us(terms);
  const double deviation = kMeanToDeviation * std::max(error_, kMinError);
  const double max_off =
      kMaxDeviations * std::sqrt(std::max(0.0, variance) + square(deviation * predicted));
  const double off = std::clamp(taken - predicted, -max_off, max_off);
  const double scale = std::max(predicted, predicted + off);
  if (!(scale > 0)) return;
  const double noise = square(deviation * scale);

  // The variance along these terms becomes variance * noise / (variance + noise) / kMemory.
  const double sum = std::max(0.0, variance) + noise;
  const double shrink =
      variance > 0 ? (kMemory * variance - (1 - kMemory) * noise) / (variance * kMemory * sum) : 0;
  for (size_t i = 0; i < kNumTerms; ++i) {
    us_[i] += towards[i] * off / sum;
    for (size_t j = 0; j < kNumTerms; ++j) covariance_[i][j] -= shrink * towards[i] * towards[j];
  }
  keep_above_zero();
  watch_speed(off / scale, noise / sum);
}

// share: the part of `off` that is noise; the rest is from uncertain terms.
void StepTimes::watch_speed(double off, double share) {
  error_ += kErrorRate * share * (std::abs(off) - error_);
  bias_ += kBiasRate * share * (off - bias_);
  if (std::abs(bias_) < kBiasOfChange * std::max(error_, kMinError)) return;
  const double change = 2 * bias_;
  for (size_t i = 0; i < kNumTerms; ++i)
    for (size_t j = 0; j < kNumTerms; ++j) covariance_[i][j] += change * change * us_[i] * us_[j];
  bias_ = 0;
}

// Sets a negative term to 0 and moves the others to their most likely values under that condition.
void StepTimes::keep_above_zero() {
  for (size_t round = 0; round < kNumTerms; ++round) {
    const auto lowest = std::ranges::min_element(us_);
    if (*lowest >= 0) return;
    const auto i = static_cast<size_t>(lowest - us_.begin());
    if (covariance_[i][i] > 0) {
      const double back = us_[i] / covariance_[i][i];
      for (size_t j = 0; j < kNumTerms; ++j) us_[j] -= back * covariance_[j][i];
    }
    us_[i] = 0;
  }
  for (double& term : us_) term = std::max(0.0, term);
}

Duration StepTimes::predict(const StepShape& shape) const {
  return Duration(std::llround(us(terms_of(shape)) * 1e3));
}

int StepTimes::prefill_rows_within(Duration goal, const StepShape& others, int begin,
                                   Limits limits) const {
  const int known = std::max(limits.min_rows, 2 * max_beside_decode_ - others.prefill_rows);
  const double remaining = to_us(goal) / (1 + error_) - us(terms_of(others));
  // n rows take n row + (n begin + n (n + 1) / 2) key, where row and key are the costs of one.
  const double key = us_[3] / kKeysOfTerm;
  const double linear = us_[1] + key * (begin + 0.5);
  const double root = linear + std::sqrt(linear * linear + 2 * key * std::max(0.0, remaining));
  double rows = remaining > 0 ? std::numeric_limits<int>::max() : 0;
  if (remaining > 0 && root > 0) rows = std::min(rows, 2 * remaining / root);
  const int within = std::min({static_cast<int>(rows), limits.max_rows, known});
  return std::max(limits.min_rows, within);
}

}  // namespace hocket
