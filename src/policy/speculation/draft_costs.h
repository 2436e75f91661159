// Measures how much longer steps take with drafts, for steps of one size: so many answers,
// about so many keys each. Experts touched and not rows decide it on CPUs, so the cost of each
// number of drafts is measured; one that was not is guessed from those beside it. Nothing
// allocates.
#pragma once

#include <array>

#include "base/running_median.h"
#include "policy/speculation/gate_tuning.h"

namespace hocket {

class DraftCosts {
 public:
  static constexpr int kMostCounted =
      4096;  // drafts of all answers together; more count as so many

  // Begins anew for steps of this many answers. growth: see GateTuning.
  void begin(int num_answers, double growth);
  // Adds a step with this many drafts that took `ratio` times a reference: the prediction of its
  // time without drafts, whose error is the same with and without them.
  void note(int num_drafts, double ratio);
  // Numbers of drafts with one cell are measured together: up to 8 each has its own, further ones
  // share it with those up to 19 % more.
  static size_t cell_of(int num_drafts);
  static constexpr size_t kNumCells = 9 + 4 * 9;
  // Half of each count of measurements is forgotten, but never all.
  void age();

  struct Cost {
    double time_ratio = 1;  // the time as a multiple of the time without drafts
    double error = 0;       // its relative standard error
    double doubt = 0;       // how far it may be off, as a share
    int num_measured = 0;   // steps that count
    bool is_near = false;   // true if a known cost is near enough to believe this one
  };
  Cost of(int num_drafts) const;
  // Returns the ratio of steps without drafts; 0: unknown.
  double plain() const { return cells_[0].ratio.median(); }
  int num_plain() const { return cells_[0].ratio.count(); }
  // Returns the exponent with which steps were seen to grow, of the smallest number of drafts that
  // is known; the value that it began with if none is.
  double growth() const;

 private:
  struct Cell {
    RunningMedian<kGate.remembered> ratio;
    float num_drafts = 0;  // mean of its steps
  };
  double growth_of(const Cell& cell) const;
  double log_rows(double num_drafts) const;
  double error_of(const Cell& cell) const;

  int num_answers_ = 1;
  double growth_ = kGate.growth;
  double noise_ = 0;  // relative spread of single steps
  std::array<Cell, kNumCells> cells_{};
};

}  // namespace hocket
