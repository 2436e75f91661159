// One turn of the engine: intake, schedule, prepare, forward, sample, commit, reply. Always in this
// order.
#include <algorithm>
#include <thread>

#include "engine/engine_state.h"

namespace hocket {

bool Engine::State::step(Outbox& box) {
  outbox = &box;
  intake();
  const TimePoint begin = clock.now();
  const Batch& batch = scheduler.schedule(begin);
  busy = !batch.empty();
  if (batch.empty()) return rest(), false;
  prepare(batch,
          {.page_tokens = runner->info().page_tokens, .prompt_role = runner->info().prompt_role},
          forward_batch, outputs);
  runner->forward(forward_batch);
  sample(batch);
  scheduler.commit(batch, sampled, clock.now());
  publish(batch, clock.now(), clock.now() - begin);  // reads requests that end with reply()
  reply(batch);
  return true;
}

// Nothing to run: aborts may have ended the last requests. Idle is when invariants are cheap to
// check.
void Engine::State::rest() {
  send_finished();
  const SchedulerStats now = scheduler.stats();
  num_waiting = now.num_waiting;
  last_turn_ns = clock.now().time_since_epoch().count();
  {
    std::lock_guard lock(stats_mutex);
    stats.scheduler = now;
    stats.gen_throughput = 0;
  }
  if (scheduler.idle() && std::exchange(integrity_unchecked, false)) scheduler.check_integrity();
}

void Engine::State::intake() {
  while (auto command = commands.pop()) std::visit([this](auto& c) { handle(c); }, *command);
}

void Engine::State::handle(RequestInput& input) {
  --num_handed_over;
  integrity_unchecked = true;
  const RequestId id = input.id;
  const int from = input.sampling.prompt_logprobs_from;
  const size_t prompt_len = input.prompt.size();
  if (auto added = scheduler.add(std::move(input)); !added)
    return refuse(id, std::move(added.error()));
  live.insert(id);
  if (from >= 0) prompt_logprobs[id].resize(prompt_len - std::min<size_t>(from, prompt_len));
}

void Engine::State::handle(AbortRequest& abort) {
  scheduler.abort(abort.id, abort.reason, std::move(abort.why));
}

void Engine::State::handle(AbortAll& abort) {
  for (const RequestId id : live) scheduler.abort(id, FinishReason::abort, abort.why);
}

void Engine::State::handle(FlushCache& flush) {
  flush.answer.set_value(scheduler.flush_cache());
}

// Logits are made and used block by block, so that a step's memory for them is bounded.
void Engine::State::sample(const Batch& batch) {
  sampled.clear();
  logprobs.clear();
  const int block = runner->plan().work.max_logits_rows;
  const int num_rows = static_cast<int>(outputs.size());
  for (int begin = 0; begin < num_rows; begin += block)
    sample_block(batch, begin, std::min(block, num_rows - begin));
}

void Engine::State::sample_block(const Batch& batch, int begin, int count) {
  const View<float> logits = runner->logits(begin, count);
  const EngineInfo& info = runner->info();
  sample_rows.clear();
  for (int i = 0; i < count; ++i) {
    const OutputRow& row = outputs[begin + i];
    const Request& request = *batch.slices[row.slice].request;
    if (row.reports) report_prompt_logprob(request, row, logits, i);
    if (!row.samples) continue;
    const auto tokens = std::span(request.tokens);
    sample_rows.push_back({.logits_row = i,
                           .params = &request.sampling,
                           .prompt = tokens.first(request.prompt_len),
                           .generated = tokens.subspan(request.prompt_len),
                           .end_ids = request.sampling.ignore_eos
                                          ? std::span<const TokenId>()
                                          : std::span<const TokenId>(info.model.eos_ids)});
  }
  const size_t first = sampled.size();
  sampled.resize(first + sample_rows.size());
  logprobs.resize(first + sample_rows.size());
  sampler.sample(runner->backend(), logits, sample_rows, std::span(sampled).subspan(first),
                 std::span(logprobs).subspan(first));
}

void Engine::State::report_prompt_logprob(const Request& request, const OutputRow& row,
                                          View<const float> logits, int logits_row) {
  const auto found = prompt_logprobs.find(request.id);
  if (found == prompt_logprobs.end()) return;  // told already, before a retraction
  const int from = request.sampling.prompt_logprobs_from;
  const int token = row.token + 1;
  if (token < from) return;
  found->second[token - from] =
      Sampler::position_logprobs(runner->backend(), logits, logits_row, request.tokens[token],
                                 std::max(request.sampling.num_top_logprobs, 0));
}

void Engine::State::reply(const Batch& batch) {
  size_t next = 0;
  for (const Slice& slice : batch.slices) {
    if (!slice.samples) continue;
    const size_t i = next++;
    Request& request = *slice.request;
    // Took no token: the summary that follows says why.
    if (sampled[i].failed || request.finish == FinishReason::abort ||
        request.finish == FinishReason::error)
      continue;
    RequestOutput output{.id = request.id, .token = sampled[i].token};
    output.logprobs = std::move(logprobs[i]);
    if (request.generated() == 1) {
      if (auto node = prompt_logprobs.extract(request.id); !node.empty())
        output.prompt_logprobs =
            std::make_unique<std::vector<PositionLogprobs>>(std::move(node.mapped()));
    }
    if (request.finish != FinishReason::none) output.summary = summarise(request);
    send(std::move(output));
  }
  send_finished();
}

// Those that ended without a token of this step: aborted, failed, refused by memory.
void Engine::State::send_finished() {
  if (!scheduler.has_finished()) return;
  for (const std::unique_ptr<Request>& request : scheduler.take_finished())
    if (live.contains(request->id)) send({.id = request->id, .summary = summarise(*request)});
}

std::unique_ptr<RequestSummary> Engine::State::summarise(Request& request) {
  live.erase(request.id);
  prompt_logprobs.erase(request.id);
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
  summary->times = request.times;
  return summary;
}

void Engine::State::refuse(RequestId id, Error why) {
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
void Engine::State::send(RequestOutput&& output) {
  while (!outbox->push(output)) {
    HOCKET_CHECK(threaded.load());
    if (outbox->closed()) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Engine::State::publish(const Batch& batch, TimePoint now, Duration took) {
  const SchedulerStats counts = scheduler.stats();
  step_log.note(batch, counts, now, took);
  num_waiting = counts.num_waiting;
  last_turn_ns = now.time_since_epoch().count();
  std::lock_guard lock(stats_mutex);
  stats.scheduler = counts;
  ++stats.num_steps;
  ++(batch.mode == ForwardMode::decode ? stats.num_decode_steps : stats.num_prefill_steps);
  stats.gen_throughput = step_log.gen_throughput();
  stats.last_step_seconds = to_seconds(took);
  stats.step_seconds_total += to_seconds(took);
}

}  // namespace hocket
