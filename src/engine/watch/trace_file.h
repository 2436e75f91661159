// What a profile recorded, as Chrome's trace events (JSON): Perfetto and chrome://tracing open it.
//
//   process   a rank
//   threads   compute: steps, their operations and what is beside; waiting: for ranks, for
//             transfers; and a wire for each kind, half and part of messages to here
//   arrows    from where a rank handed its rows over to where they arrived
//
// Ids of arrows follow from step, layer, lane, kind and ranks alone, so that files of several
// processes fit together. Times are those of the steady clock; `boot_id` and `unix_at_zero_us` say
// how to compare them.
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
  size_t end_span = 0;  // of TraceTape::spans; begins where the one before ends
};

// Of one rank.
struct TraceTape {
  int rank = 0;
  std::vector<TraceStep> steps;
  std::vector<LedgerSpan> spans;
  size_t num_left_out = 0;  // steps for which there was no room
};

struct TraceInfo {
  std::string model;
  int num_ranks = 1;                   // of the service
  const OrderTable* orders = nullptr;  // null: plans are numbers
};

// Writes beside `path` and renames, so that nobody finds half a file. Errors: io.
Result<void> write_trace(const std::string& path, const TraceInfo& info,
                         std::span<const TraceTape> tapes);
// The same as text. Errors: io, without memory for it.
Result<std::string> trace_text(const TraceInfo& info, std::span<const TraceTape> tapes);

}  // namespace hocket
