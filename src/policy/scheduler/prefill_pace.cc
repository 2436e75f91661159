#include "policy/scheduler/prefill_pace.h"

#include <algorithm>
#include <limits>

namespace hocket {

PrefillPace::PrefillPace(const SchedulerOptions& options, LatencyPacing& pacing,
                         std::span<const std::unique_ptr<Request>> decoding)
    : options_(options), pacing_(pacing) {
  if (options.prefill_policy != PrefillPolicy::latency) return;
  for (const auto& request : decoding) {
    if (!request->decodes()) continue;
    const int rows = request->uncomputed();
    (rows == 1 ? decoding_.decode_rows : decoding_.prefill_rows) += rows;
    decoding_.keys += keys_of_rows(request->computed_len, rows);
  }
  // Drafts are offered behind the prompts, so their number is a forecast; each attends to about as
  // many keys as the other rows.
  const int num_rows = decoding_.decode_rows + decoding_.prefill_rows;
  const int num_drafts = std::min(pacing.num_drafts, kMaxDrafts * decoding_.decode_rows);
  if (num_drafts > 0) decoding_.keys += num_drafts * (decoding_.keys / num_rows);
  decoding_.decode_rows += num_drafts;
  const double beside = to_seconds(pacing.times.predict(decoding_)) / (1 - options.prompt_share);
  goal_ = options.prompt_share > 0 ? std::max(options.itl_goal, from_seconds(beside))
                                   : options.itl_goal;
}

int PrefillPace::max_rows(const Batch& batch, int begin) {
  if (decoding_.keys == 0) return std::numeric_limits<int>::max();
  StepShape others = shape_of(batch);
  const bool first = others.prefill_rows == 0;
  others.decode_rows += decoding_.decode_rows;
  others.prefill_rows += decoding_.prefill_rows;
  others.keys += decoding_.keys;
  const int rows = pacing_.times.prefill_rows_within(
      goal_, others, begin,
      {.min_rows = first ? options_.page_tokens : 0, .max_rows = options_.chunk_tokens});
  if (first) pacing_.chunk_tokens = rows;
  return rows;
}

}  // namespace hocket
