// The tables of `hocket bench speculation`.
#pragma once

#include <string>
#include <vector>

#include "bench/speculation_rig.h"

namespace hocket {

// Steps with a fixed number of drafts, and without any if it is 0.
struct FixedSteps {
  int drafts = 0;
  double experts = 0, bytes = 0;  // experts of a layer; bytes of all ranks
  std::vector<double> rates;      // ratios of tokens/s to none, by round
};

// The choices of the gate.
struct GateFigures {
  std::vector<double> first, later;  // ratios of tokens/s to none, by block
  int found_after = -1;              // its steps until most of a block had drafts; -1: never
  int num_learning = 0;              // its steps until `later` began
  bool is_cut = false;               // --point-seconds ended it
  std::vector<std::string> choices;  // its last choices and their reasons, by size of step and rank
};

// Prints the rows of one group. Thread: one.
class SpeculationTable {
 public:
  // `options` outlives it.
  SpeculationTable(const BenchSpeculationOptions& options, const SpeculationGroup& group)
      : options_(options), group_(group) {}

  // Notes the tokens/s of a block without drafts.
  void note_off(double rate) { off_rates_.push_back(rate); }
  void print_steps(const FixedSteps& plain, const std::vector<FixedSteps>& fixed) const;
  void print_head() const;
  void print_point(int percent, const std::vector<FixedSteps>& fixed,
                   const GateFigures& gate) const;

 private:
  bool quotes() const { return !options_.edits.empty(); }
  bool imposes() const { return options_.algorithm.empty(); }

  const BenchSpeculationOptions& options_;
  const SpeculationGroup group_;
  std::vector<double> off_rates_;
};

}  // namespace hocket
