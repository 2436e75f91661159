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
  bool quick = false;           // fewer passes and steps, without overlap: a minute
};

// Runs the benches kernels, one-batch (bf16, int8, int4), scheduler and overlap as children, one
// after the other, for about ten minutes, and prints each one's command and table as soon as it
// ends. Returns the exit status: that of the error if there was one, else 0.
int bench_machine(const BenchMachineOptions& options);

// The tables, in Markdown, from what those benches print with --json.   Errors: bad_value, if a
// text has none of the lines that its bench prints.
//
// The limits as a sentence, and a row for each case: time, ratios, share of the limit.
Result<std::string> kernels_table(std::string_view text);
// A row for each pass; a column for each form: tokens/s, spread, share of the limit that binds.
Result<std::string> passes_table(const std::array<std::string, 3>& forms);
Result<std::string> scheduler_table(std::string_view text);
// A row for each point: the planner's choice against serial, and the fastest order against it.
Result<std::string> overlap_table(std::string_view text);

}  // namespace hocket
