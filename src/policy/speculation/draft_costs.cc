#include "policy/speculation/draft_costs.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace hocket {
namespace {

constexpr double kNearRows = 0.41;  // costs of rows within a factor of e^0.41 = 1.5 are alike
constexpr double kFarRatio = 1.25;  // a ratio this much off the median says nothing of the noise

}  // namespace

void DraftCosts::begin(int num_answers, double growth) {
  *this = {};
  num_answers_ = num_answers;
  growth_ = growth;
}

size_t DraftCosts::cell_of(int num_drafts) {
  if (num_drafts <= 8) return static_cast<size_t>(std::max(num_drafts, 0));
  const int most = std::min(num_drafts, kMostCounted);
  return 8 + static_cast<size_t>(std::ceil(4 * std::log2(most / 8.0)));
}

void DraftCosts::note(int num_drafts, double ratio) {
  Cell& cell = cells_[cell_of(num_drafts)];
  if (cell.ratio.count() > 0) {
    const double off = ratio / cell.ratio.median();
    if (off < kFarRatio && off * kFarRatio > 1) noise_ += 0.1 * (1.5 * std::abs(off - 1) - noise_);
  }
  const double weight = std::max(0.1, 1.0 / (cell.ratio.count() + 1));
  cell.num_drafts += static_cast<float>(weight * (num_drafts - cell.num_drafts));
  cell.ratio.add(static_cast<float>(ratio));
}

void DraftCosts::age() {
  for (Cell& cell : cells_) {
    const auto median = static_cast<float>(cell.ratio.median());
    const int kept = (cell.ratio.count() + 1) / 2;
    cell.ratio.clear();
    for (int i = 0; i < kept; ++i) cell.ratio.add(median);
  }
}

double DraftCosts::log_rows(double num_drafts) const {
  return std::log1p(num_drafts / num_answers_);
}

// More rows never take less time, so less is noise.
double DraftCosts::growth_of(const Cell& cell) const {
  const double ratio = cell.ratio.median() / plain();
  return ratio > 1 ? std::log(ratio) / log_rows(cell.num_drafts) : 0;
}

double DraftCosts::error_of(const Cell& cell) const {
  const int count = cell.ratio.count();
  return count > 0 ? noise_ / std::sqrt(count) : noise_;
}

double DraftCosts::growth() const {
  if (plain() > 0)
    for (size_t i = 1; i < kNumCells; ++i)
      if (cells_[i].ratio.count() >= kGate.few) return growth_of(cells_[i]);
  return growth_;
}

DraftCosts::Cost DraftCosts::of(int num_drafts) const {
  if (num_drafts <= 0)
    return {.error = error_of(cells_[0]),
            .doubt = kGate.doubt_near * kGate.guess / (num_plain() + kGate.guess),
            .num_measured = num_plain(),
            .is_near = true};
  const size_t mine = cell_of(num_drafts);
  const double at = log_rows(num_drafts);
  std::optional<double> growth;  // the measured cells' beside mine, weighted by how near they are
  double below_at = 0, nearest = 1e9;
  const auto is_measured = [this](size_t i) { return cells_[i].ratio.count() > 0; };
  size_t below = mine, above = mine + 1;
  while (plain() > 0 && below > 1 && !is_measured(--below)) {
  }
  while (above < kNumCells && !is_measured(above)) ++above;
  if (plain() > 0 && below > 0 && below < mine && is_measured(below)) {
    below_at = log_rows(cells_[below].num_drafts);
    growth = growth_of(cells_[below]);
    nearest = at - below_at;
  }
  const bool is_above = plain() > 0 && above < kNumCells;
  if (is_above) {
    const double above_at = log_rows(cells_[above].num_drafts);
    const double of_above = growth_of(cells_[above]);
    const double part = growth ? (at - below_at) / std::max(above_at - below_at, 1e-6) : 1;
    growth = growth ? *growth + std::clamp(part, 0.0, 1.0) * (of_above - *growth) : of_above;
    nearest = std::min(nearest, above_at - at);
  }
  const Cell& cell = cells_[mine];
  const int count = plain() > 0 ? cell.ratio.count() : 0;
  double guess = growth.value_or(growth_);
  // Behind the last one that was measured, steps grow from there as from the first.
  if (below_at > 0 && !is_above) guess += (growth_ - guess) * (at - below_at) / at;
  const double known = count > 0 ? growth_of(cell) : guess;
  const double blended = (count * known + kGate.guess * guess) / (count + kGate.guess);
  const bool is_near = count >= kGate.few || nearest < kNearRows;
  const double doubt = is_near ? kGate.doubt_near : kGate.doubt_unmeasured;
  return {.time_ratio = std::exp(at * blended),
          .error = std::hypot(error_of(cell), error_of(cells_[0])),
          .doubt = doubt * kGate.guess / (count + kGate.guess) + (count > 0 ? error_of(cell) : 0),
          .num_measured = count,
          .is_near = is_near};
}

}  // namespace hocket
