#include "policy/scheduler/timeouts.h"

#include <memory>
#include <utility>

#include "base/log.h"

namespace hocket {
namespace {

void end_waiting(RequestLists& lists, Duration limit, SchedulerCounters& counters, TimePoint now) {
  while (std::unique_ptr<Request> request = lists.waiting.take_queued_before(now - limit)) {
    const double waited = to_seconds(now - request->times.queued);
    request->fail(error(ErrorCode::timed_out, "waited {:.1f} s, longer than the {:.1f} s allowed",
                        waited, to_seconds(limit))
                      .with_fix("ask again when the server is less busy, or raise "
                                "--waiting-timeout"));
    ++counters.num_timed_out_total;
    log::info("request {} waited {:.1f} s, longer than --waiting-timeout, and ends",
              value(request->id), waited);
    lists.close(std::move(request), now);
  }
}

bool end_active(RequestLists& lists, Duration limit, SchedulerCounters& counters, TimePoint now) {
  bool ended = false;
  lists.for_each_active([&](Request& request) {
    if (now - request.times.first_scheduled <= limit) return;
    const double ran = to_seconds(now - request.times.first_scheduled);
    request.fail(error(ErrorCode::timed_out, "ran {:.1f} s, longer than the {:.1f} s allowed", ran,
                       to_seconds(limit))
                     .with_fix("ask for fewer tokens, or raise --running-timeout"));
    ++counters.num_timed_out_total;
    log::info("request {} ran {:.1f} s, longer than --running-timeout, and ends after {} tokens",
              value(request.id), ran, request.generated());
    ended = true;
  });
  lists.remove_ended(now);
  return ended;
}

}  // namespace

bool end_timed_out(RequestLists& lists, const SchedulerOptions& options,
                   SchedulerCounters& counters, TimePoint now) {
  if (options.waiting_timeout > Duration{})
    end_waiting(lists, options.waiting_timeout, counters, now);
  return options.running_timeout > Duration{} &&
         end_active(lists, options.running_timeout, counters, now);
}

}  // namespace hocket
