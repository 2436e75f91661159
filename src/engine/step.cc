// One turn of the engine: intake, schedule, prepare, forward, sample, commit, reply. Always in this
// order.
#include <algorithm>
#include <thread>

#include "base/black_box.h"
#include "engine/rank.h"

namespace hocket {
namespace {

// A step for answers stays one, whatever grammars have to say.
constexpr int kMostForcedTokens = 32;

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
    intake();  // what has just come has its say in the next step
    lockstep->open(wish());
  }
  at(Verb::sample);
  sample(*flight, tools());
  commit(*flight);
  reply(*flight);
  return true;
}

// From intake to forward; null when there was nothing to compute, or ranks were lost.
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

// What this rank says of the next step. Prompts may be as many as wait or are cut, up to what a
// step can hold.
StepWish Rank::wish() {
  StepWish wish{.work = scheduler.prospect(), .load = load()};
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

// Ranks were lost, so what they computed together is worth nothing, nor is what was kept of it:
// everybody here ends with the error that names them.
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

// The same verbs, one step apart: step n is committed and answered while step n + 1 computes.
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
  at(Verb::forward);                               // samples, too
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

// The one that was used before the last.
Flight& Rank::take_flight() {
  next_flight = (next_flight + 1) % flights.size();
  return flights[next_flight];
}

PrepareOptions Rank::prepare_options() const {
  const EngineInfo& info = runner->info();
  return {.page_tokens = info.page_tokens,
          .prompt_role = info.prompt_role,
          .eos_ids = info.model.eos_ids,
          .packing = lockstep ? overlap.packing(lockstep->plan()) : std::nullopt,
          .grammars = &grammars,
          .most_forced = info.overlap_schedule ? 0 : kMostForcedTokens};
}

// Nothing to run: aborts may have ended the last requests. Idle is when invariants are cheap to
// check.
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
  if (auto added = scheduler.add(std::move(input)); !added) {
    grammars.forget(id);
    return refuse(id, std::move(added.error()));
  }
  live.insert(id);
  if (from >= 0) prompt_logprobs[id].resize(prompt_len - std::min<size_t>(from, prompt_len));
}

void Rank::handle(AbortRequest& abort) {
  scheduler.abort(abort.id, abort.reason, std::move(abort.why));
}

void Rank::handle(AbortAll& abort) {
  for (const RequestId id : live) scheduler.abort(id, FinishReason::abort, abort.why);
}

// A row too many of a request that has ended is no reason to refuse.
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
  publish(flight, now);  // reads requests that end with reply()
}

void Rank::keep_prompt_logprobs(Flight& flight) {
  for (PromptRow& row : flight.prompt_rows) {
    const auto kept = prompt_logprobs.find(row.request);
    if (kept == prompt_logprobs.end()) continue;  // its request has been answered
    HOCKET_CHECK(static_cast<size_t>(row.index) < kept->second.size());
    kept->second[row.index] = std::move(row.found);
  }
}

// A row of an answer that has ended is one too many.
void Rank::keep_routed(const Flight& flight) {
  const ModelConfig& model = runner->info().model;
  const auto ids_of = [&](int rows) {
    return static_cast<size_t>(rows) * static_cast<size_t>(model.num_layers * model.moe.top_k);
  };
  for (size_t i = 0; i < flight.batch->slices.size(); ++i) {
    const Slice& slice = flight.batch->slices[i];
    const Request& request = *slice.request;
    if (!request.sampling.return_routed_experts || !live.contains(request.id)) continue;
    std::vector<uint16_t>& kept = routed[request.id];
    kept.resize(std::max(kept.size(), ids_of(slice.begin + slice.len)));
    std::ranges::copy(flight.routed.rows(flight.row_begins[i], slice.len),
                      kept.begin() + static_cast<std::ptrdiff_t>(ids_of(slice.begin)));
  }
}

void Rank::reply(Flight& flight) {
  at(Verb::reply);
  size_t next = 0;
  for (const Slice& slice : flight.batch->slices) {
    if (!slice.samples) continue;
    const size_t i = next++;
    // Took no token: a row too many, or the summary that follows says why.
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

// Those that ended without a token of this step: aborted, failed, refused by memory.
void Rank::send_finished() {
  if (!scheduler.has_finished()) return;
  for (const std::unique_ptr<Request>& request : scheduler.take_finished()) {
    if (live.contains(request->id)) send({.id = request->id, .summary = summarise(*request)});
    grammars.forget(request->id);  // its last row is done
  }
}

std::unique_ptr<RequestSummary> Rank::summarise(Request& request) {
  live.erase(request.id);
  prompt_logprobs.erase(request.id);
  auto chosen = routed.extract(request.id);
  {
    std::lock_guard lock(stats_mutex);
    ++(request.finish == FinishReason::abort   ? stats.num_requests_aborted
       : request.finish == FinishReason::error ? stats.num_requests_failed
                                               : stats.num_requests_finished);
  }
  auto summary = std::make_unique<RequestSummary>();
  summary->finish = request.finish;
  summary->matched_stop = request.matched_stop;
  summary->error = std::move(request.error);
  summary->prompt_tokens = request.prompt_len;
  summary->cached_tokens = request.cached_len;
  summary->generated_tokens = request.generated();
  summary->num_retractions = request.num_retractions;
  summary->rank = rank_index();
  summary->times = request.times;
  if (!chosen.empty()) {
    const ModelConfig& model = runner->info().model;
    const int a_token = model.num_layers * model.moe.top_k;
    std::vector<uint16_t>& ids = chosen.mapped();
    ids.resize(std::min(ids.size(), (request.tokens.size() - 1) * static_cast<size_t>(a_token)));
    summary->routed = std::make_shared<RoutedExperts>(
        RoutedExperts{model.num_layers, model.moe.top_k, std::move(ids)});
  }
  return summary;
}

void Rank::refuse(RequestId id, Error why) {
  auto summary = std::make_unique<RequestSummary>();
  summary->finish = FinishReason::error;
  summary->error = std::move(why);
  {
    std::lock_guard lock(stats_mutex);
    ++stats.num_requests_failed;
  }
  send({.id = id, .summary = std::move(summary)});
}

// The reader is always faster than a step; should it fall behind, the step waits for it rather than
// lose a token.
void Rank::send(RequestOutput&& output) {
  while (!outbox->push(output)) {
    if (outbox->closed()) return;
    HOCKET_CHECK(threaded.load());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// What was handed over stays counted until what became of it is.
void Rank::publish_load(const SchedulerStats& now) {
  num_waiting = now.num_waiting;
  const int requests = now.num_running + now.num_waiting + now.num_held;
  const int64_t tokens = now.num_waiting_tokens + now.num_running;
  load_requests += requests - published_requests - new_requests;
  load_tokens += tokens - published_tokens - new_tokens;
  published_requests = requests;
  published_tokens = tokens;
  new_requests = 0;
  new_tokens = 0;
}

// For who wonders, after a crash, what came before.
void Rank::note_step(const Flight& flight, const SchedulerStats& now) const {
  const Batch& batch = *flight.batch;
  black_box::note(black_box::Ring::steps,
                  R"("step":{},"rank":{},"rows":{},"decode_rows":{},"seqs":{},"running":{},)"
                  R"("waiting":{},"used_tokens":{},"took_us":{:.0f})",
                  step_log.num_steps(), rank_index(), batch.num_rows, batch.num_answer_rows(),
                  batch.slices.size(), now.num_running, now.num_waiting, now.num_used_tokens,
                  to_us(flight.took()));
}

void Rank::publish(const Flight& flight, TimePoint now) {
  const SchedulerStats counts = scheduler.stats();
  std::optional<StepTransfers> transfers;
  if (lockstep) {
    const StepAccount& a = overlap.account();
    transfers = {a.hidden, a.exposed, a.hidden_is_bound};
  }
  step_log.note(*flight.batch, counts, flight.end, flight.took(), transfers);
  publish_load(counts);
  board.note(scheduler, now);
  note_step(flight, counts);
  last_turn_ns = now.time_since_epoch().count();
  std::lock_guard lock(stats_mutex);
  stats.scheduler = counts;
  stats.steps = step_log.counts();
  stats.gen_throughput = flight.batch->slices.empty() ? 0 : step_log.gen_throughput();
  stats.last_step_seconds = to_seconds(flight.took());
  stats.step_seconds_total += to_seconds(flight.took());
  stats.exchange_wait_seconds_total = to_seconds(exchange_waited);
  stats.agreement_wait_seconds_total = to_seconds(agreement_waited);
}

}  // namespace hocket
