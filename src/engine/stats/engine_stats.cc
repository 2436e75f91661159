#include "engine/stats/engine_stats.h"

#include <algorithm>

namespace hocket {
namespace {

void add(const SchedulerStats& s, SchedulerStats& sum) {
  static_cast<SchedulerCounters&>(sum).add(s);
  sum.num_running += s.num_running;
  sum.num_waiting += s.num_waiting;
  sum.num_sessions += s.num_sessions;
  sum.num_held += s.num_held;
  sum.num_waiting_tokens += s.num_waiting_tokens;
  // The weighting needs the page counts from before this rank is added.
  const double pages = double{1} * sum.num_pages + s.num_pages;
  if (pages > 0)
    sum.token_usage = (sum.token_usage * sum.num_pages + s.token_usage * s.num_pages) / pages;
  sum.num_pages += s.num_pages;
  sum.num_free_pages += s.num_free_pages;
  sum.num_cached_pages += s.num_cached_pages;
  sum.num_private_pages += s.num_private_pages;
  sum.num_window_pages += s.num_window_pages;
  sum.num_free_window_pages += s.num_free_window_pages;
  sum.num_cached_window_pages += s.num_cached_window_pages;
  sum.num_states += s.num_states;
  sum.num_free_states += s.num_free_states;
  sum.num_cached_states += s.num_cached_states;
  sum.num_used_tokens += s.num_used_tokens;
  sum.new_token_ratio = std::max(sum.new_token_ratio, s.new_token_ratio);
  sum.itl_chunk_tokens += s.itl_chunk_tokens;
  sum.step_time_error = std::max(sum.step_time_error, s.step_time_error);
}

void add(const StepCounts& s, StepCounts& sum) {
  add_counters<StepCounters>(kStepCounters, s, sum);
  sum.num_retracted_lately += s.num_retracted_lately;
}

void add(const PageTierStats& s, PageTierStats& sum) {
  sum.exists |= s.exists;
  sum.away |= s.away;
  sum.pages_written_total += s.pages_written_total;
  sum.pages_read_total += s.pages_read_total;
  sum.tokens_total += s.tokens_total;
  sum.read_bytes_total += s.read_bytes_total;
  sum.read_seconds_total += s.read_seconds_total;
  sum.saved_seconds_total += s.saved_seconds_total;
  sum.damaged_total = s.damaged_total;
  sum.failures_total = s.failures_total;
}

// Stores and peers are the same for all ranks of a process.
void add(const CacheTierStats& s, std::optional<CacheTierStats>& sum) {
  if (!sum) sum.emplace();
  for (size_t i = 0; i < s.tiers.size(); ++i) add(s.tiers[i], sum->tiers[i]);
  sum->pages_written_total += s.pages_written_total;
  for (size_t i = 0; i < s.left_out_total.size(); ++i)
    sum->left_out_total[i] += s.left_out_total[i];
  sum->pages_read_total += s.pages_read_total;
  for (size_t i = 0; i < s.not_read_total.size(); ++i)
    sum->not_read_total[i] += s.not_read_total[i];
  sum->reads_given_up_total += s.reads_given_up_total;
  for (size_t i = 0; i < s.num_waiting.size(); ++i) sum->num_waiting[i] += s.num_waiting[i];
  sum->read_seconds_total += s.read_seconds_total;
  sum->peer_pages_total = s.peer_pages_total;
  sum->peer_prefills_total = s.peer_prefills_total;
  sum->peer_failures_total = s.peer_failures_total;
  sum->served_pages_total = s.served_pages_total;
  sum->served_prefills_total = s.served_prefills_total;
  sum->served_refused_total = s.served_refused_total;
  sum->files = s.files;
  sum->bytes = s.bytes;
  sum->evicted_total = s.evicted_total;
  sum->damaged_total = s.damaged_total;
}

// Checks and layers are the same for all ranks.
void add(const ExpertMoveStats& s, std::optional<ExpertMoveStats>& sum) {
  if (!sum) {
    sum = s;
    return;
  }
  sum->moves_total += s.moves_total;
  sum->bytes_total += s.bytes_total;
  sum->load_seconds_total += s.load_seconds_total;
  sum->failures_total += s.failures_total;
  if (sum->last_error.empty()) sum->last_error = s.last_error;
}

void add(const OverlapStats& s, OverlapStats& sum) {
  const auto steps_of = [](const OverlapStats& o) { return o.steps[0] + o.steps[1] + o.steps[2]; };
  if (steps_of(s) > 0) sum.exact_arrival = s.exact_arrival && (sum.exact_arrival || !steps_of(sum));
  sum.step_seconds += s.step_seconds;
  for (size_t op = 0; op < s.compute_seconds.size(); ++op)
    sum.compute_seconds[op] += s.compute_seconds[op];
  sum.other_seconds += s.other_seconds;
  sum.exposed_seconds += s.exposed_seconds;
  sum.waiting_seconds += s.waiting_seconds;
  sum.idle_seconds += s.idle_seconds;
  sum.hidden_seconds += s.hidden_seconds;
  for (size_t kind = 0; kind < s.steps.size(); ++kind) sum.steps[kind] += s.steps[kind];
  sum.trial_steps += s.trial_steps;
  sum.unknown_plans += s.unknown_plans;
  sum.half_imbalance = std::max(sum.half_imbalance, s.half_imbalance);
  for (size_t phase = 0; phase < s.plan.size(); ++phase)
    if (sum.plan[phase].empty()) sum.plan[phase] = s.plan[phase];
}

}  // namespace

EngineStats add_up(std::vector<RankStats> ranks) {
  EngineStats sum;
  for (const RankStats& s : ranks) {
    add(s.scheduler, sum.scheduler);
    add(s.steps, sum.steps);
    for (size_t i = 0; i < s.fetched_tokens_total.size(); ++i)
      sum.fetched_tokens_total[i] += s.fetched_tokens_total[i];
    sum.num_requests_finished += s.num_requests_finished;
    sum.num_requests_aborted += s.num_requests_aborted;
    sum.num_requests_failed += s.num_requests_failed;
    sum.gen_throughput += s.gen_throughput;
    sum.input_throughput += s.input_throughput;
    sum.last_step_seconds = std::max(sum.last_step_seconds, s.last_step_seconds);
    sum.step_seconds_total += s.step_seconds_total;
    sum.exchange_wait_seconds_total += s.exchange_wait_seconds_total;
    sum.agreement_wait_seconds_total += s.agreement_wait_seconds_total;
    if (s.seconds_since_last_step > sum.seconds_since_last_step) sum.position = s.position;
    sum.seconds_since_last_step = std::max(sum.seconds_since_last_step, s.seconds_since_last_step);
    sum.busy |= s.busy;
    if (s.tier) add(*s.tier, sum.tier);
    if (s.moves) add(*s.moves, sum.moves);
    add(s.overlap, sum.overlap);
  }
  sum.ranks = std::move(ranks);
  return sum;
}

}  // namespace hocket
