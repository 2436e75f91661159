// Reads traces (trace_file.h) of one or several processes, merges them and draws them as text:
//
//   step 12 | decode, 64 rows | two-batch, four-phase | 812.4 us, 1 character = 6.3 us
//   rank 0 compute   qqaagdQQAAG!!xxxxxDkkcXXXX.XXKcC
//          dispatch       00000000   4444444
//          combine                       00000000   4444
//   rank 1 ...
//
// Letters are operations, capitals those of the second half; `.` waits for slower ranks and `!` for
// a transfer, each within an operation. Digits are the lanes of messages on their way, `+` several.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

// A slice of a trace. Times count from the clock's zero.
struct TraceSlice {
  enum class Kind : uint8_t { compute, other, exposed, waiting, wire };
  Kind kind = Kind::compute;
  int rank = 0, layer = -1, half = 0, part = 0;
  std::string name;
  Duration begin{}, end{};
};

// A step of one rank, as its ledger booked it.
struct TracedStep {
  uint64_t step = 0;
  int rank = 0, rows = 0;
  std::string phase, plan;
  Duration begin{}, took{};
  Duration compute{}, other{}, exposed{}, waiting{}, idle{}, hidden{};
  std::vector<TraceSlice> slices;
};

struct StepTrace {
  nlohmann::json file;            // the merged file, to be written
  std::vector<TracedStep> steps;  // sorted by step, then rank
};

// Reads the files of one profile of one service. Times of several files are converted to the clock
// of the first. Errors: io, bad_value (not such a trace; a rank that occurs twice), naming the
// file.
Result<StepTrace> read_traces(std::span<const std::string> paths);

struct TraceWindow {
  std::optional<uint64_t> step;               // nullopt: one in the middle that all ranks have
  std::optional<std::pair<int, int>> layers;  // first and last; nullopt: all
  int width = 100;                            // characters
};
// Draws one step. Errors: bad_value (no such step or layer).
Result<std::string> draw_step(const StepTrace& trace, const TraceWindow& window);
// Returns one line per rank: sums over its steps.
std::string draw_totals(const StepTrace& trace);

}  // namespace hocket
