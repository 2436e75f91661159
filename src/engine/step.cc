// One step of the engine: intake, schedule, prepare, forward, sample, commit, reply, always in this
// order. Several ranks agree on the step before schedule(), and exchange that agreement while the
// step before samples:
//
//   rank 0   intake settle schedule prepare forward  intake open(next)  sample commit reply
//   rank 1   intake settle schedule prepare forward  intake open(next)  sample commit reply
#include <algorithm>
#include <new>

#include "engine/rank.h"

namespace hocket {
namespace {

// Limits the rows that forced tokens add to a decode step, so that it does not become a prefill.

}  // namespace

bool Rank::step(Outbox& box) {
  outbox = &box;
  if (forward_thread) return step_overlapped();
  overlap.begin();
  Flight* const flight = compute_next();
  if (flight == nullptr) return false;
  const Ledger::Beside beside(ledger(), "sample, answer");
  overlap.end();
  if (lockstep) {
    intake();  // requests that just came count in the next step
    lockstep->open(wish());
  }
  at(Verb::sample);
  sample(*flight, tools());
  commit(*flight);
  reply(*flight);
  return true;
}

// Runs intake to forward. Returns null if there was nothing to compute, or ranks were lost.
Flight* Rank::compute_next() {
  const Ledger::Beside beside(ledger(), "schedule");
  intake();
  at(Verb::agree);
  if (lockstep && !lockstep->settle(wish())) return give_up({}), nullptr;
  if (lockstep) overlap.heard(*lockstep);
  at(Verb::schedule);
  const Batch& batch = scheduler.schedule(clock.now());
  busy = !batch.empty();
  if (batch.empty()) return rest(), nullptr;
  pending_prompt_rows = batch.pending_tokens;
  Flight& flight = take_flight();
  at(Verb::prepare);
  prepare(batch, prepare_options(), flight);
  agreement_waited += watch.take_waited();
  at(Verb::forward);
  forward(flight, {}, tools());
  exchange_waited += watch.take_waited();
  if (!flight.lost) return &flight;
  lockstep->fail_with(*flight.lost);
  return give_up(batch), nullptr;
}

// Returns this rank's wish for the next step. It asks for as many prompt rows as wait or are left
// of cut prompts, up to the size of a step.
StepWish Rank::wish() {
  StepWish wish{.work = scheduler.forecast_next_step(), .load = load()};
  if (!lockstep) return wish;
  int64_t rows = wish.work.num_decoding;
  if (wish.work.begins || wish.work.continues) {
    if (!mixes) rows = 0;
    rows += std::max(scheduler.stats().num_waiting_tokens, pending_prompt_rows);
  }
  wish.prompt_step_rows = static_cast<int>(std::min<int64_t>(rows, runner->plan().work.max_rows));
  overlap.tell(*lockstep, wish);
  return wish;
}

// Ranks were lost, so the results that they computed together cannot be used, nor the pages cached
// from them: every request of this rank ends with the error that names them.
void Rank::give_up(const Batch& batch) {
  network->pulse().end();
  network->lose(lockstep->lost_peer(), *lockstep->lost());
  const Error why = network->lost().value_or(*lockstep->lost());
  for (const RequestId id : live) scheduler.abort(id, FinishReason::error, why);
  if (!batch.empty()) {
    const auto num_samples = std::ranges::count_if(batch.slices, &Slice::samples);
    const std::vector<SampledToken> none(static_cast<size_t>(num_samples), {.failed = true});
    scheduler.commit(batch, none, clock.now());
  }
  busy = false;
  rest();
  scheduler.flush_cache();
  leave();
}

// Runs the same verbs one step apart: step n is committed and answered while step n + 1 computes.
//
//   engine thread    prepare(n + 1) launch | wait(n) commit(n) reply(n) | prepare(n + 2) launch ...
//   forward thread   .... forward, sample(n) ....| .... forward, sample(n + 1) ....
bool Rank::step_overlapped() {
  intake();
  at(Verb::schedule);
  const bool one_computes = forward_thread->num_under_way() > 0;
  const Batch& batch = scheduler.schedule(clock.now());
  busy = one_computes || !batch.empty();
  if (!busy) return rest(), false;
  if (!batch.empty()) {
    at(Verb::prepare);
    Flight& flight = take_flight();
    prepare(batch, prepare_options(), flight);
    forward_thread->launch(flight);  // forward, sample
  }
  at(Verb::forward);                               // the forward thread samples, too
  if (one_computes) land(forward_thread->wait());  // commit, reply
  return true;
}

void Rank::land(Flight& flight) {
  commit(flight);
  reply(flight);
}

void Rank::land_all() {
  while (forward_thread && forward_thread->num_under_way() > 0) land(forward_thread->wait());
}

// Returns the flight that was used two steps ago.
Flight& Rank::take_flight() {
  next_flight = (next_flight + 1) % flights.size();
  return flights[next_flight];
}

PrepareOptions Rank::prepare_options() const {
  const EngineInfo& info = runner->info();
  return {.page_tokens = info.page_tokens,
          .unseen_page = runner->unseen_page(),
          .prompt_role = info.prompt_role,
          .eos_ids = info.model.eos_ids,
          .packing = lockstep ? overlap.packing(lockstep->plan()) : std::nullopt,
          .grammars = &grammars,
          .most_forced = info.overlap_schedule ? 0 : kMostForcedTokens};
}

// Handles a step with nothing to run: aborts may have ended the last requests. An idle rank also
// checks invariants, because that is cheap then.
void Rank::rest() {
  at(Verb::rest);
  overlap.drop();
  send_finished();
  const SchedulerStats now = scheduler.stats();
  publish_load(now);
  board.note_rest(scheduler, clock.now());
  last_turn_ns = clock.now().time_since_epoch().count();
  {
    std::lock_guard lock(stats_mutex);
    stats.scheduler = now;
    stats.gen_throughput = 0;
  }
  if (scheduler.idle() && std::exchange(integrity_unchecked, false)) scheduler.check_integrity();
}

void Rank::intake() {
  at(Verb::intake);
  while (auto command = commands.pop()) std::visit([this](auto& c) { handle(c); }, *command);
}

void Rank::handle(RequestInput& input) {
  --num_handed_over;
  ++new_requests;
  new_tokens += std::ssize(input.prompt);
  if (network && !met) return refuse(input.id, why_not_met());
  integrity_unchecked = true;
  const RequestId id = input.id;
  const int from = input.sampling.prompt_logprobs_from;
  const size_t prompt_len = input.prompt.size();
  const auto forget = [&] {
    live.erase(id);
    prompt_logprobs.erase(id);
  };
  try {
    live.insert(id);
    if (from >= 0) prompt_logprobs[id].resize(prompt_len - std::min<size_t>(from, prompt_len));
  } catch (const std::bad_alloc&) {
    forget();
    return refuse(id, error(ErrorCode::out_of_memory, "no memory is left to take the request in")
                          .with_fix("ask again later, or for fewer log-probabilities"));
  }
  if (auto added = scheduler.add(std::move(input)); !added) {
    forget();
    grammars.forget(id);
    return refuse(id, std::move(added.error()));
  }
}

void Rank::handle(AbortRequest& abort) {
  scheduler.abort(abort.id, abort.reason, std::move(abort.why));
}

void Rank::handle(AbortAll& abort) {
  for (const RequestId id : live) scheduler.abort(id, FinishReason::abort, abort.why);
}

// If no request is live, only rows of ended requests can be under way: land them before the flush.
void Rank::handle(FlushCache& flush) {
  if (live.empty()) land_all();
  flush.answer.set_value(scheduler.flush_cache());
}

void Rank::commit(Flight& flight) {
  at(Verb::commit);
  keep_prompt_logprobs(flight);
  if (flight.wants_routed) keep_routed(flight);
  const Batch& batch = *flight.batch;
  scheduler.note_duration(batch, flight.took());
  const TimePoint now = clock.now();
  scheduler.commit(batch, flight.sampled, now);
  if (experts != nullptr) experts->note(flight.experts);
  publish(flight, now);  // reads requests, which end with reply()
}

void Rank::reply(Flight& flight) {
  at(Verb::reply);
  size_t next = 0;
  for (const Slice& slice : flight.batch->slices) {
    if (!slice.samples) continue;
    const size_t i = next++;
    // No token was accepted: the request had ended, or its summary, sent below, has the error.
    if (!slice.accepted) continue;
    Request& request = *slice.request;
    RequestOutput output{.id = request.id, .token = flight.sampled[i].token};
    output.logprobs = std::move(flight.logprobs[i]);
    if (request.generated() == 1 + slice.num_forced) {
      if (auto node = prompt_logprobs.extract(request.id); !node.empty())
        output.prompt_logprobs =
            std::make_unique<std::vector<PositionLogprobs>>(std::move(node.mapped()));
    }
    for (const TokenId forced : flight.sampled[i].forced.first(slice.num_forced)) {
      send(std::move(output));
      output = {.id = request.id, .token = forced};
    }
    if (request.finish != FinishReason::none) output.summary = summarise(request);
    send(std::move(output));
  }
  send_finished();
}

}  // namespace hocket
