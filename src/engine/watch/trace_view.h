// Traces (trace_file.h) read again, put together and drawn as text:
//
//   step 12 | decode, 64 rows | two-batch, four-phase | 812.4 us, 1 character = 6.3 us
//   rank 0 compute   qqaagdQQAAG!!xxxxxDkkcXXXX.XXKcC
//          dispatch       00000000   4444444
//          combine                       00000000   4444
//   rank 1 ...
//
// Letters are operations, capitals those of the second half; over them, `.` waits for slower ranks
// and `!` for a transfer. Digits are the lane of the message that is on its way, `+` several.
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

// A slice of a trace. Times: since the clock began.
struct TraceSlice {
  enum class Kind : uint8_t { compute, beside, exposed, waiting, wire };
  Kind kind = Kind::compute;
  int rank = 0, layer = -1, half = 0, part = 0;
  std::string name;
  Duration begin{}, end{};
};

// A step of a rank, as its ledger booked it.
struct RankStep {
  uint64_t step = 0;
  int rank = 0, rows = 0;
  std::string phase, plan;
  Duration begin{}, took{};
  Duration compute{}, beside{}, exposed{}, waiting{}, idle{}, hidden{};
  std::vector<TraceSlice> slices;
};

struct StepTrace {
  nlohmann::json file;          // as it will be written
  std::vector<RankStep> steps;  // by step, then rank
};

// Of one service and profile; several files are put on one clock: that of the first. Errors: io,
// bad_value (not such a trace; a rank that comes twice), naming the file.
Result<StepTrace> read_traces(std::span<const std::string> paths);

struct TraceWindow {
  std::optional<uint64_t> step;               // else one in the middle that all ranks have
  std::optional<std::pair<int, int>> layers;  // first and last; else all
  int width = 100;                            // characters
};
// Errors: bad_value (no such step or layer).
Result<std::string> draw_step(const StepTrace& trace, const TraceWindow& window);
// A line for each rank: sums over its steps.
std::string draw_totals(const StepTrace& trace);

}  // namespace hocket
