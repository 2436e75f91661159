// Requests that lose their place: by a timeout, in a full queue, or to a larger priority.
#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/queue_limits.h"
#include "policy/scheduler/prefill_pass.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

void Scheduler::State::apply_timeouts() {
  const auto seconds = [this](TimePoint since) { return to_seconds(now - since); };
  if (options.waiting_timeout > Duration{}) {
    while (auto request = waiting.take_queued_before(now - options.waiting_timeout)) {
      fail_request(*request,
                   error(ErrorCode::timed_out, "waited {:.1f} s, longer than the {:.1f} s allowed",
                         seconds(request->times.queued), to_seconds(options.waiting_timeout))
                       .with_fix("ask again when the server is less busy, or raise "
                                 "--waiting-timeout"));
      ++counters.num_timed_out_total;
      log::info("timed_out request={} waited_s={:.1f}", value(request->id),
                seconds(request->times.queued));
      close(std::move(request));
    }
  }
  if (options.running_timeout == Duration{}) return;
  const auto expire = [&](Request& request) {
    if (now - request.times.first_scheduled <= options.running_timeout) return;
    fail_request(request,
                 error(ErrorCode::timed_out, "ran {:.1f} s, longer than the {:.1f} s allowed",
                       seconds(request.times.first_scheduled), to_seconds(options.running_timeout))
                     .with_fix("ask for fewer tokens, or raise --running-timeout"));
    ++counters.num_timed_out_total;
    log::info("timed_out request={} ran_s={:.1f} tokens={}", value(request.id),
              seconds(request.times.first_scheduled), request.generated());
    pause.end();
  };
  for (const auto& request : chunked) expire(*request);
  for (const auto& request : running.requests()) expire(*request);
  remove_ended();
}

// Does everything of a displacement that allocates; returns the error for the displaced request.
Error Scheduler::State::prepare_displacement(const Request& worse) {
  if (finished.size() == finished.capacity()) finished.reserve(2 * finished.size() + 1);
  Error why = queue_full(queue_limits::kDisplaced, options.max_queued_requests);
  log::info("displaced request={} priority={}", value(worse.id), worse.priority);
  return why;
}

void Scheduler::State::displace(std::unique_ptr<Request> request, Error why) {
  fail_request(*request, std::move(why));
  ++counters.num_displaced_total;
  close(std::move(request));
}

// Sends running requests back to the queue until the head fits. Victims are those whose priority is
// smaller by more than the threshold: the smallest priority first, of equal ones the newest. If all
// together would not be enough, none is sent back. A victim frees what was reserved for it and the
// pages of its own. Returns true if the head may be tried again.
bool PrefillPass::preempt_for_head() {
  if (!may_preempt()) return false;
  const PriorityOptions& rules = s_.options.priorities;
  const Request& head = *s_.waiting.head();
  const auto candidates = s_.running.requests().first(static_cast<size_t>(num_decodable_));
  std::vector<const Request*> victims;
  for (const auto& request : candidates)
    if (request->finish == FinishReason::none &&
        int64_t{head.priority} - request->priority > rules.preemption_threshold)
      victims.push_back(request.get());
  if (victims.empty()) return false;
  std::ranges::sort(victims, {}, [](const Request* r) {
    return std::tuple(r->priority, -r->times.arrived.time_since_epoch(), -int64_t(value(r->id)));
  });

  const auto reserve = [&](const Request& r) {
    return s_.ratio.now() * std::min(r.remaining_new_tokens(), kMaxReservedNewTokens);
  };
  double need = 0;
  int window_need = 0;
  {
    const PrefixMatch match = s_.cache.match(head.cache_namespace, head.reusable_tokens());
    const PrefillCandidate wanted = candidate(head, match, 0);
    need = adder_.shortfall(wanted, s_.available_tokens());
    window_need = wanted.window_need - wanted.window_room;
  }
  if (need <= 0 && window_need <= 0 && s_.num_active() < s_.options.max_running_requests)
    return false;
  size_t num_victims = 0;
  const auto lacks = [&] { return need > 0 || window_need > 0; };
  while (num_victims < victims.size() && (num_victims == 0 || lacks())) {
    const Request& victim = *victims[num_victims++];
    const int num_own = static_cast<int>(victim.pages.size()) - victim.leased_pages;
    need -= reserve(victim) + num_own * s_.page_tokens();
    window_need -= s_.num_released_window_pages(victim) + s_.reserved_window_pages(victim);
  }
  if (lacks()) return false;
  if (s_.batches.has_rows()) {
    s_.must_settle = true;
    return false;
  }

  for (const Request* victim : std::span(victims).first(num_victims)) {
    adder_.free_reserve(reserve(*victim));
    const auto place = std::ranges::find(candidates, victim, &std::unique_ptr<Request>::get);
    if (place - candidates.begin() < s_.running.num_ready) --s_.running.num_ready;
    --num_decodable_;
    log::info("preempt request={} priority={} for={} priority={}", value(victim->id),
              victim->priority, value(head.id), head.priority);
    preempted_.push_back(victim);
    s_.retract(s_.running.take(*victim));
    ++s_.counters.num_preempted_total;
  }
  return true;
}

}  // namespace hocket
