#include "policy/scheduler/scheduler_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/queue_limits.h"
#include "policy/scheduler/new_request.h"
#include "policy/scheduler/prefill_pass.h"
#include "policy/scheduler/retract.h"
#include "policy/scheduler/timeouts.h"
#include "policy/scheduler/token_acceptor.h"

namespace hocket {

namespace {

constexpr QueueLimit<int64_t> kDisplacedLimit{
    "{} requests wait already, and this one gave its place to a request of larger priority",
    "try again later, or raise --max-queued-requests"};

// Returns the options as the parts of the scheduler use them.
SchedulerOptions settled(SchedulerOptions options) {
  const Result<void> sound = check(options);
  if (!sound) log::error("{}", sound.error().message);
  HOCKET_CHECK(sound.has_value());
  options.max_decode_rows = std::max(options.max_decode_rows, options.max_running_requests);
  // PrefillPolicy::latency always cuts prompts.
  if (options.prefill_policy == PrefillPolicy::latency && options.chunk_tokens < 0)
    options.chunk_tokens = options.max_prefill_tokens;
  return options;
}

}  // namespace

Scheduler::State::State(SchedulerOptions given)
    : options(settled(std::move(given))),
      memory(options),
      lists(options, memory),
      decode(options),
      ratio(options.conservativeness) {
  batches.reserve(static_cast<size_t>(options.max_running_requests) + 1);
}

// Allocates everything before the request joins the queue, so that it waits or nothing has changed.
Result<void> Scheduler::State::add(RequestInput input) {
  HOCKET_TRY_VOID(check_request(input, options));
  const bool skips_limits = input.taken_over;
  const Request* worse =
      options.priorities.enabled && !skips_limits
          ? lists.waiting.newest_below_priority(priority_of(input, options.priorities))
          : nullptr;
  if (!skips_limits)
    HOCKET_TRY_VOID(lists.waiting.check_room(static_cast<int>(input.prompt.size()), worse));
  const TimePoint arrived = input.arrived;
  std::unique_ptr<Request> request = make_request(std::move(input), options);
  bool ready = true;
  if (options.hooks != nullptr) {
    HOCKET_TRY(ready, options.hooks->ready(*request));
  }
  const bool displaces = worse != nullptr && lists.waiting.full();
  const RequestId displaced = displaces ? worse->id : RequestId{};
  Error why;
  if (displaces) {
    lists.reserve_close();
    why = queue_full(kDisplacedLimit, options.max_queued_requests);
    log::info("request {} of priority {} leaves the full queue for one of a larger priority",
              value(worse->id), worse->priority);
  }
  if (ready) {
    lists.waiting.push(std::move(request), arrived, rows_total);
    pause.end();
  } else {
    lists.waiting.hold(std::move(request), arrived);
  }
  if (displaces) {
    std::unique_ptr<Request> leaving = lists.waiting.remove(displaced);
    leaving->fail(std::move(why));
    ++counters.num_displaced_total;
    lists.close(std::move(leaving), now);
  }
  return {};
}

bool Scheduler::State::abort(RequestId id, FinishReason reason, Error error) {
  HOCKET_CHECK(reason != FinishReason::none);
  std::unique_ptr<Request> waiting = lists.waiting.remove(id);
  Request* request = waiting ? waiting.get() : lists.find_active(id);
  if (request == nullptr) return false;
  request->finish = reason;
  request->error = std::move(error);
  pause.end();
  if (waiting)
    lists.close(std::move(waiting), now);
  else
    lists.remove_ended(now);
  return true;
}

void Scheduler::State::schedule() {
  HOCKET_CHECK(!batches.has_drafts());
  Batch& batch = batches.begin();
  lists.running.num_ready = 0;
  choose();
  if (options.hooks != nullptr)
    batch.idle_step = options.hooks->any_rank_computes(batch) && batch.empty();
  if (!batch.empty()) launch();
}

// Chooses the rows of the step:
//
//   prefill_first:   prefill rows, or if there are none, decode rows; in turn while window pages
//                    are so few that a prompt takes many short steps
//   mixed, latency:  pages for decode rows, prefill rows beside them, then the decode rows
void Scheduler::State::choose() {
  if (end_timed_out(lists, options, counters, now)) pause.end();
  check_held_requests();
  if (!batches.has_rows() && std::exchange(must_commit_first, false)) pause.end();
  if (must_commit_first) return;
  RunningBatch& running = lists.running;
  if (running.empty())
    pause.end();
  else
    pause.count_step();
  if (lists.num_active() == 0 && lists.waiting.empty()) {
    if (!lists.has_leaving()) ratio.reset();
    return;
  }

  Batch& batch = batches.newest();
  const bool mixes = options.prefill_policy != PrefillPolicy::prefill_first;
  const bool answers_first = std::exchange(short_of_windows, false) && !mixes;
  if (mixes || answers_first) running.num_ready = prepare_decode();
  if (!must_commit_first && (!answers_first || running.num_ready == 0)) prefill();
  if (!mixes && !answers_first && !must_commit_first && batch.empty())
    running.num_ready = prepare_decode();
  if (batch.empty() && running.num_ready == 0 && !batches.has_rows()) {
    pause.end();  // the last running request had to be ended
    prefill();
  }
  decode.add(running.ready(), batches.size() == 0, batch, memory);
}

void Scheduler::State::check_held_requests() {
  for (int i = 0; i < lists.waiting.num_held();) {
    Result<bool> ready = options.hooks->ready(*lists.waiting.held()[static_cast<size_t>(i)]);
    if (ready && !*ready) {
      ++i;
      continue;
    }
    pause.end();
    std::unique_ptr<Request> request = lists.waiting.take_held(i);
    if (ready) {
      const TimePoint queued = request->times.queued;
      lists.waiting.push(std::move(request), queued, rows_total);
    } else {
      request->fail(std::move(ready.error()));
      lists.close(std::move(request), now);
    }
  }
}

// Takes the pages for the next rows of every running request that decodes. Returns how many of
// `running` were looked at: all, or none if nothing decodes or a request must lose its pages first.
int Scheduler::State::prepare_decode() {
  RunningBatch& running = lists.running;
  if (std::ranges::none_of(running.requests(),
                           [](const auto& request) { return request->decodes(); }))
    return 0;
  if (batches.has_rows() && running.num_pages_needed() > memory.num_takeable_pages()) {
    must_commit_first = true;
    return 0;
  }
  if (retract_until_decode_fits(lists, memory, ratio, counters, now) == 0)
    ratio.decay();
  else
    pause.begin();  // nothing is admitted before something changed
  for (const auto& request : running.requests())
    if (request->decodes()) memory.take_pages(*request, request->len());
  return running.size();
}

// Precondition: the decode rows of this pass, of running.ready(), already have their pages.
void Scheduler::State::prefill() {
  if (lists.chunked.empty() && (pause.is_active() || lists.waiting.empty())) return;
  const bool rank_may_begin = options.hooks == nullptr || options.hooks->may_begin();
  const bool may_begin = rank_may_begin && !pause.is_active();
  if (lists.chunked.empty() && !may_begin) return;
  const PrefillOutcome outcome =
      PrefillPass(options, lists, memory,
                  {.batch = batches.newest(),
                   .pacing = pacing,
                   .counters = counters,
                   .num_decode_rows = decode.num_rows(lists.running.ready()),
                   .ratio = ratio.now(),
                   .may_begin = may_begin,
                   .rows_in_flight = batches.has_rows(),
                   .rows_total = rows_total,
                   .now = now})
          .run();
  if (outcome.no_room) pause.begin();
  must_commit_first |= outcome.must_commit_first;
  short_of_windows |= outcome.short_of_windows;
}

// Counts the batch's rows as computed from here on, and the tokens that they sample as present;
// drafts count when they are committed.
void Scheduler::State::launch() {
  Batch& batch = batches.newest();
  int num_samples = 0, num_done = 0;
  const auto num_prompts = std::ssize(batch.slices) - batch.num_answers();
  for (Slice& slice : batch.slices) {
    Request& request = *slice.request;
    memory.states.assign_slots(slice);
    request.computed_len = slice.begin + slice.len - slice.num_drafts;
    ++request.num_batches;
    if (!slice.is_sampled) continue;
    ++request.num_pending;
    request.pending_sample = num_samples;
    num_samples += slice.num_samples();
    num_done += &slice - batch.slices.data() < num_prompts ? 1 : 0;
  }
  batch.num_running = lists.running.size() - num_done;
  batch.num_waiting = lists.waiting.size();
  batch.pending_tokens = lists.waiting.num_tokens();
  for (const auto& request : lists.chunked) batch.pending_tokens += request->uncomputed();
  batch.overlapped = batches.size() > 0;
  batches.launch();
}

// Predicts whether admission pauses after the next step: a request that surely ends clears it, and
// so do enough steps.
NextStepForecast Scheduler::State::forecast_next_step() const {
  const RunningBatch& running = lists.running;
  NextStepForecast next{.continues = !lists.chunked.empty()};
  for (const auto& request : running.requests()) next.num_decoding += request->decodes() ? 1 : 0;
  const bool tries =
      !pause.is_active_next_step() || next.num_decoding < running.size() || running.empty();
  next.begins = !lists.waiting.empty() && tries;
  return next;
}

// Takes the results of a finished step: lengths, tokens, the tree, and requests that end.
void Scheduler::State::commit(std::span<const SampledToken> sampled) {
  Batch& done = batches.take_oldest();
  rows_total += static_cast<uint64_t>(done.num_rows);
  TokenAcceptor acceptor(options, counters, now);
  size_t num_used = 0;
  for (Slice& slice : done.slices) {
    Request& request = *slice.request;
    int end = slice.begin + slice.len - slice.num_drafts;
    --request.num_batches;
    const auto num_samples = static_cast<size_t>(slice.num_samples());
    HOCKET_CHECK(num_used + num_samples <= sampled.size());
    const auto own = sampled.subspan(num_used, num_samples);
    num_used += num_samples;
    if (slice.is_sampled) --request.num_pending;
    if (slice.logprobs_from >= 0) request.logprobs_done = std::min(end, request.prompt_len - 1);
    // The request ended earlier, or was aborted in flight.
    if (request.finish != FinishReason::none) continue;

    const bool was_prefilling = request.state == Request::State::prefilling;
    acceptor.take(slice, own);
    if (request.finish == FinishReason::error) continue;
    end += slice.num_accepted();
    if (was_prefilling) memory.cache_pages(request, end);
    memory.states.commit(request, end);
    memory.windows.slide(request, end);
  }
  HOCKET_CHECK(num_used == sampled.size());

  const int num_before = lists.num_finished();
  lists.remove_ended(now);
  if (lists.num_finished() > num_before) pause.end();
}

// Puts the newest back first, so that the oldest is the next to be admitted.
int Scheduler::State::undo_steps(const Error& why) {
  while (batches.size() > 0) {
    for (const Slice& slice : batches.take_newest().slices) {
      Request& request = *slice.request;
      --request.num_batches;
      if (slice.is_sampled) --request.num_pending;
      request.pending_sample = -1;
      request.computed_len = slice.begin;
    }
  }
  lists.running.num_ready = 0;
  must_commit_first = false;
  pause.end();
  lists.remove_ended(now);
  int num_put_back = 0;
  while (lists.num_active() > 0) num_put_back += put_back(lists.take_newest(), why) ? 1 : 0;
  return num_put_back;
}

// Returns false if the request has been put back too often, and ends.
bool Scheduler::State::put_back(std::unique_ptr<Request> request, const Error& why) {
  const int len = static_cast<int>(request->tokens.size());
  if (std::exchange(request->undone_at, len) != len) request->num_undone = 0;
  if (++request->num_undone > kMaxUndone) {
    request->fail(why);
    lists.close(std::move(request), now);
    return false;
  }
  memory.cache_pages(*request, request->computed_len);
  lists.retract(std::move(request), now);
  return true;
}

}  // namespace hocket
