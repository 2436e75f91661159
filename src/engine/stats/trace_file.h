// Writes the steps of a profile as Chrome's trace events (JSON), which Perfetto and
// chrome://tracing open.
//
//   process   a rank
//   threads   compute: steps, their operations and other work; waiting: for ranks, for
//             transfers; and a wire for each kind, half and part of messages to this rank
//   arrows    from where a rank sent its rows to where they arrived
//
// Ids of arrows follow from step, layer, lane, kind and ranks alone, so that files of several
// processes fit together. Times are those of the steady clock; `boot_id` and `unix_at_zero_us`
// allow to compare those of two machines.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/overlap/ledger.h"

namespace hocket {

struct TraceStep {
  StepAccount account;
  size_t end_span = 0;  // end index in TraceTape::spans; begins at the end_span before
};

// The recorded steps of one rank.
struct TraceTape {
  int rank = 0;
  std::vector<TraceStep> steps;
  std::vector<LedgerSpan> spans;
  size_t num_left_out = 0;  // steps for which there was no room
};

struct TraceInfo {
  std::string model;
  int num_ranks = 1;                   // ranks of the service
  const OrderTable* orders = nullptr;  // null: plans are numbers
};

// Writes beside `path` and renames, so that a reader never finds half a file. Errors: io.
Result<void> write_trace(const std::string& path, const TraceInfo& info,
                         std::span<const TraceTape> tapes);
// Returns the same as text. Errors: io if there is no memory for it.
Result<std::string> trace_text(const TraceInfo& info, std::span<const TraceTape> tapes);

}  // namespace hocket
