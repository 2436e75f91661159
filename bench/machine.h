// `hocket bench machine`: the figures of this machine as tables to paste into docs/results.md.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

struct BenchMachineOptions {
  std::string shape = "small";  // the shape of the whole models (dummy_shape.h)
  int rounds = 3;               // rounds of each whole model
  bool quick = false;           // fewer passes, without overlap
};

// Runs the benches kernels, one-batch (bf16, int8, int4), scheduler and overlap as children, one
// after the other and prints each one's command and table as soon as it ends. Returns the exit
// status: that of the error if there was one, else 0.
int bench_machine(const BenchMachineOptions& options);

// These functions make tables in Markdown of the text that those benches print with --json.
// Errors: bad_value, if the text has none of the lines that its bench prints.
//
// Returns a sentence with the limits of the machine, and a table with a row for each case: its
// time, its speed against other kernels, and its share of the limit.
Result<std::string> kernels_table(std::string_view text);
// Returns a table with a row for each pass and a column for each form: tokens/s, their spread, and
// the share of the limit that holds the pass back. The cell of a pass that a form lacks is empty.
Result<std::string> passes_table(const std::array<std::string, 3>& forms);
// Returns a table with a row for each case: its time, and its share of the goal if there is one.
Result<std::string> scheduler_table(std::string_view text);
// Returns a table with a row for each point: the plan that the planner chose, its time, and its
// speed against serial and against the fastest order.
Result<std::string> overlap_table(std::string_view text);

}  // namespace hocket
