#include "policy/speculation/draft_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hocket {
namespace {

constexpr double square(double x) {
  return x * x;
}

// The largest number of drafts of a cell.
double max_of(size_t cell) {
  return cell <= 8 ? static_cast<double>(cell)
                   : std::floor(8 * std::exp2(static_cast<double>(cell - 8) / 4));
}

}  // namespace

void DraftCosts::begin(int num_answers, double growth) {
  *this = {};
  num_answers_ = num_answers;
  variance_ = square(kGate.first_noise);
  for (size_t i = 1; i < kNumCells; ++i) {
    rows_[i] = log_rows(max_of(i));
    state_[i] = growth * rows_[i];
    for (size_t j = 1; j <= i; ++j) {
      const double common = square(kGate.growth_error) * rows_[i] * rows_[j] +
                            square(kGate.growth_error) * std::min(rows_[i], rows_[j]);
      covariance_[i][j] = covariance_[j][i] = static_cast<float>(common);
    }
    covariance_[i][i] += static_cast<float>(square(kGate.own_cost_error));
  }
  covariance_[0][0] = static_cast<float>(square(kGate.first_speed_error));
}

size_t DraftCosts::cell_of(int num_drafts) {
  if (num_drafts <= 8) return static_cast<size_t>(std::max(num_drafts, 0));
  const int most = std::min(num_drafts, kMaxCounted);
  return 8 + static_cast<size_t>(std::ceil(4 * std::log2(most / 8.0)));
}

double DraftCosts::log_rows(double num_drafts) const {
  return std::log1p(num_drafts / num_answers_);
}

DraftCosts::CellShare DraftCosts::cell_share_of(int num_drafts) const {
  const size_t cell = cell_of(num_drafts);
  return {cell, cell == 0 ? 0 : log_rows(num_drafts) / rows_[cell]};
}

double DraftCosts::covariance(const CellShare& a, const CellShare& b) const {
  return a.share * b.share * static_cast<double>(covariance_[a.cell][b.cell]);
}

// Since the last step the speed may have changed, and costs a little.
void DraftCosts::pass_time(uint64_t at) {
  const auto steps = static_cast<double>(std::min<uint64_t>(at - std::min(at, last_), 256));
  last_ = at;
  covariance_[0][0] += static_cast<float>(steps * kGate.speed_change * variance_);
  for (size_t i = 1; i < kNumCells; ++i)
    covariance_[i][i] += static_cast<float>(steps * square(kGate.cost_change));
}

// Steps in a row that are far off show that the speed has changed. If steps with another number of
// drafts, soon after, show that it changed back, the costs of both numbers were wrong instead. If
// only the steps with this number are off, however rare they are, its cost has changed.
void DraftCosts::watch(const CellShare& part, double off, double deviation) {
  if (std::exchange(last_cell_, part.cell) != part.cell) run_ = 0;
  ++run_;
  const double errors = std::clamp(off / deviation, -kGate.max_bias, kGate.max_bias);
  bias_ += kGate.bias_rate * (errors - bias_);
  double& own_bias = biases_[part.cell];
  own_bias += kGate.bias_rate * (errors - own_bias);
  const auto change = static_cast<float>(square(std::min(std::abs(off), kGate.max_change_error)));
  if (std::abs(bias_) >= kGate.bias_of_change) {
    covariance_[0][0] += change;
    const SpeedChange before = std::exchange(last_change_, {bias_, part.cell, last_});
    if (before.bias * bias_ < 0 && before.cell != part.cell && run_ <= kGate.few + 1 &&
        last_ - before.at <= kGate.change_back_steps) {
      doubt_cost(part.cell, change);
      doubt_cost(before.cell, change);
      last_change_ = {};
    }
    bias_ = 0, biases_ = {};
  } else if (std::abs(own_bias) >= kGate.own_bias_of_change) {
    doubt_cost(part.cell, change);
    own_bias = 0;
  }
}

// Adds to the variance of a cell's cost. That of the first cell is 0 by definition, so in its place
// all others are doubted, and the speed by as much in the other direction.
void DraftCosts::doubt_cost(size_t cell, float variance) {
  if (cell > 0) {
    covariance_[cell][cell] += variance;
    return;
  }
  for (size_t i = 0; i < kNumCells; ++i)
    for (size_t j = 0; j < kNumCells; ++j)
      covariance_[i][j] += (i == 0) == (j == 0) ? variance : -variance;
}

void DraftCosts::note(int num_drafts, double ratio, uint64_t at) {
  if (!(ratio > 0)) return;
  pass_time(at);
  const CellShare part = cell_share_of(num_drafts);
  counts_[part.cell] = std::min(counts_[part.cell] + 1, kManySteps);
  std::array<double, kNumCells> towards{};  // covariance of the state and this step
  const auto look = [&] {
    for (size_t i = 0; i < kNumCells; ++i)
      towards[i] = static_cast<double>(covariance_[0][i]) +
                   part.share * static_cast<double>(covariance_[part.cell][i]);
    return std::max(towards[0] + part.share * towards[part.cell], 0.0);
  };
  const double off = std::log(ratio) - state_[0] - part.share * state_[part.cell];
  watch(part, off, std::sqrt(look() + variance_));
  const double known = look();
  const double most = kGate.max_errors * std::sqrt(known + variance_);
  const double noise = std::abs(off) > most ? square(off / kGate.max_errors) - known : variance_;
  for (size_t i = 0; i < kNumCells; ++i) {
    const double gain = towards[i] / (known + noise);
    state_[i] += gain * off;
    for (size_t j = 0; j < kNumCells; ++j)
      covariance_[i][j] -= static_cast<float>(gain * towards[j]);
  }
  for (size_t i = 0; i < kNumCells; ++i) covariance_[i][i] = std::max(covariance_[i][i], 1e-8F);
  const double counted = std::clamp(off, -most, most);
  const double rate = kGate.mean_rate * square(variance_ / (known + variance_));
  variance_ =
      std::max(square(kGate.min_noise), variance_ + rate * (square(counted) - known - variance_));
}

DraftCosts::Cost DraftCosts::of(int num_drafts) const {
  const CellShare part = cell_share_of(num_drafts);
  // More rows never take less time, so less is noise.
  const double log_ratio = part.cell == 0 ? 0 : std::max(0.0, part.share * state_[part.cell]);
  return {.time_ratio = std::exp(log_ratio),
          .error = std::sqrt(covariance(part, part)),
          .num_measured = counts_[part.cell]};
}

double DraftCosts::error_between(int num_drafts, int others) const {
  const CellShare a = cell_share_of(num_drafts), b = cell_share_of(others);
  return std::sqrt(std::max(0.0, covariance(a, a) + covariance(b, b) - 2 * covariance(a, b)));
}

double DraftCosts::plain() const {
  return counts_[0] > 0 ? std::exp(state_[0]) : 0;
}

double DraftCosts::growth() const {
  for (size_t i = 1; i < kNumCells; ++i)
    if (counts_[i] >= kGate.few) return std::max(0.0, state_[i] / rows_[i]);
  return state_[1] / rows_[1];
}

}  // namespace hocket
