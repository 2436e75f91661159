// Measures how much longer steps take with drafts, for steps of one size: a number of answers
// with about the same number of keys. On CPUs the cost depends on the experts that rows touch
// rather than on the rows, so it is measured for each number of drafts.
//
// The speed of a machine drifts, and steps without drafts are rare while drafts pay. So one
// measurement contains two unknowns:
//
//   log(time / reference) = speed + cost of its number of drafts + noise
//
// A Kalman filter follows both, with all covariances: the speed moves from step to step, costs
// hardly do, and are alike for numbers that are near. So a step with another number of drafts is
// compared with the steps just before it, and a drift of the machine does not count. An outlier
// counts for little; several mean that the machine's speed has changed, or a cost. Nothing
// allocates.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "policy/speculation/gate_tuning.h"

namespace hocket {

class DraftCosts {
 public:
  // Drafts of all answers together; more count as this number.
  static constexpr int kMaxCounted = 4096;

  // Begins again for steps of this many answers. growth: see GateTuning.
  void begin(int num_answers, double growth);
  // Adds a step with this many drafts that took `ratio` times a reference, the prediction of its
  // time without drafts. at: the number of the step, ascending.
  void note(int num_drafts, double ratio, uint64_t at);
  // From now on the reference is this many times as long for the same step.
  void scale_reference(double factor) { state_[0] -= std::log(factor); }
  // Numbers of drafts with one cell are measured together: up to 8 each has its own, further ones
  // share it with those up to 19 % more.
  static size_t cell_of(int num_drafts);
  static constexpr size_t kNumCells = 9 + 4 * 9;

  struct Cost {
    double time_ratio = 1;  // the time as a multiple of the time without drafts
    double error = 0;       // its relative standard error
    int num_measured = 0;   // steps that count
  };
  Cost of(int num_drafts) const;
  // Returns the relative standard error of the ratio of both numbers' times.
  double error_between(int num_drafts, int others) const;
  // Returns the time of steps without drafts as a multiple of the reference; 0: unknown.
  double plain() const;
  int num_plain() const { return counts_[0]; }
  // Returns the exponent with which steps are known to grow with their rows.
  double growth() const;

 private:
  static constexpr int kManySteps = 1 << 20;

  // A number of drafts: its cell, and how much of the cell's cost it has, as a cell's numbers
  // differ a little.
  struct CellShare {
    size_t cell = 0;
    double share = 0;
  };
  CellShare cell_share_of(int num_drafts) const;
  double log_rows(double num_drafts) const;
  double covariance(const CellShare& a, const CellShare& b) const;
  void pass_time(uint64_t at);
  void watch(const CellShare& part, double off, double deviation);
  void doubt_cost(size_t cell, float variance);

  // The state: [0] is the log of the speed, [i] the log of the cost of cell i.
  std::array<double, kNumCells> state_{};
  std::array<std::array<float, kNumCells>, kNumCells> covariance_{};
  std::array<double, kNumCells> rows_{};    // log_rows() of the largest number of each cell
  std::array<int, kNumCells> counts_{};     // steps of each cell, up to kManySteps
  std::array<double, kNumCells> biases_{};  // as bias_, of each cell's last steps
  double num_answers_ = 1;
  double variance_ = 0;  // that of the noise of one step
  double bias_ = 0;      // mean of the last steps' errors, in standard errors
  uint64_t last_ = 0;    // number of the last step
  size_t last_cell_ = 0;
  // The last steps in a row that were far off: by bias_, their cell, and the number of the last.
  struct SpeedChange {
    double bias = 0;
    size_t cell = 0;
    uint64_t at = 0;
  };
  SpeedChange last_change_;
  int run_ = 0;  // steps of this cell in a row
};

}  // namespace hocket
