#include "policy/scheduler/scheduler_options.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "policy/cache/page_allocator.h"

namespace hocket {

// A chunk shorter than a page, or a pass shorter than a chunk, would let prompts wait for ever.
Result<void> check(const SchedulerOptions& o) {
  const auto at_least = [](const char* flag, int64_t given, int64_t least) -> Result<void> {
    if (given >= least) return {};
    return fail(error(ErrorCode::bad_value, "{} is {}, must be at least {}", flag, given, least)
                    .with_fix(fmt::format("{} {}", flag, least))
                    .with_param(flag + 2));  // without the dashes
  };
  HOCKET_TRY_VOID(at_least("--max-running-requests", o.max_running_requests, 1));
  HOCKET_CHECK((o.num_states == 0 || o.num_states >= 2 * int64_t{o.max_running_requests}));
  if (o.window.bounded()) {
    const auto least = std::min<int64_t>(o.num_pages, int64_t{2} * window_pages_of_request(o));
    HOCKET_CHECK((o.num_states == 0 && o.num_window_pages >= least));
  }
  HOCKET_TRY_VOID(at_least("--max-queued-requests", o.max_queued_requests, 1));
  HOCKET_TRY_VOID(at_least("--max-queued-tokens", o.max_queued_tokens, 0));
  if (o.chunk_tokens != -1)
    HOCKET_TRY_VOID(at_least("--chunked-prefill-size", o.chunk_tokens, o.page_tokens));
  HOCKET_TRY_VOID(at_least("--max-prefill-tokens", o.max_prefill_tokens,
                           std::max(o.chunk_tokens, o.page_tokens)));
  HOCKET_TRY_VOID(at_least("--prefill-max-requests", o.prefill_max_requests, 0));
  HOCKET_TRY_VOID(at_least("--max-chunked-requests", o.max_chunked_requests, 1));
  if (o.prefill_policy == PrefillPolicy::latency && o.itl_goal <= Duration(0))
    return fail(error(ErrorCode::bad_value, "--prefill-policy latency needs a goal above 0 ms")
                    .with_fix("--itl-slo-ms 100")
                    .with_param("itl-slo-ms"));
  if (!(std::isfinite(o.conservativeness) && o.conservativeness >= 0))
    return fail(error(ErrorCode::bad_value,
                      "--schedule-conservativeness is {}, must be a number of 0 or more",
                      o.conservativeness)
                    .with_param("schedule-conservativeness"));
  if (!(o.prompt_share >= 0 && o.prompt_share < 1))
    return fail(ErrorCode::bad_value,
                "the share of prompts in a step is {}, must be 0 or more and below 1",
                o.prompt_share);
  HOCKET_TRY_VOID(at_least("--max-overtaken", o.max_overtaken, 0));
  HOCKET_TRY_VOID(
      at_least("--priority-scheduling-preemption-threshold", o.priorities.preemption_threshold, 0));
  HOCKET_TRY_VOID(at_least("--waiting-timeout", o.waiting_timeout.count(), 0));
  HOCKET_TRY_VOID(at_least("--running-timeout", o.running_timeout.count(), 0));
  HOCKET_TRY_VOID(at_least("--in-batch-prefix-check", o.in_batch.max_cached, -1));
  HOCKET_TRY_VOID(at_least("--in-batch-prefix-common", o.in_batch.min_common, 1));
  return {};
}

int rows_at_a_time(const SchedulerOptions& options) {
  return std::max(1 + options.max_forced, options.page_tokens);
}

// Returns the pages for a window, for the page in which it begins, and for the rows of a step.
int window_pages_of_request(const SchedulerOptions& options) {
  const int tokens =
      options.window.max_keys() - 1 + options.page_tokens - 1 + rows_at_a_time(options);
  return (tokens + options.page_tokens - 2) / options.page_tokens + 1;
}

}  // namespace hocket
