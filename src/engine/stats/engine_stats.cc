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

template <class Numbers>
void add_each(const Numbers& more, Numbers& sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

void add(const PageTierStats& s, PageTierStats& sum) {
  add_counters<PageTierCounters>(kPageTierCounters, s, sum);
  sum.exists |= s.exists;
  sum.away |= s.away;
}

// The folder and the prompts of peers are the same for all ranks of a process.
void add(const CacheTierStats& s, std::optional<CacheTierStats>& sum) {
  if (!sum) sum.emplace();
  add_counters<CacheTierCounters>(kCacheTierCounters, s, *sum);
  add_counters<PeerCounters>(kPeerCounters, s, *sum);
  add_counters<ServedCounters>(kServedCounters, s, *sum);
  for (size_t i = 0; i < s.tiers.size(); ++i) add(s.tiers[i], sum->tiers[i]);
  add_each(s.left_out_total, sum->left_out_total);
  add_each(s.not_read_total, sum->not_read_total);
  add_each(s.num_waiting, sum->num_waiting);
  sum->files = s.files;
  sum->bytes = s.bytes;
  sum->num_prefills = s.num_prefills;
}

// The figures of the last check are the same for all ranks.
void add(const ExpertMoveStats& s, std::optional<ExpertMoveStats>& sum) {
  if (!sum) {
    sum = s;
    return;
  }
  add_counters<ExpertMoveCounters>(kExpertMoveCounters, s, *sum);
  if (sum->last_error.empty()) sum->last_error = s.last_error;
}

void add(const OverlapStats& s, OverlapStats& sum) {
  const auto steps_of = [](const OverlapStats& o) { return o.steps[0] + o.steps[1] + o.steps[2]; };
  if (steps_of(s) > 0) sum.exact_arrival = s.exact_arrival && (sum.exact_arrival || !steps_of(sum));
  add_counters<OverlapTimes>(kOverlapTimes, s, sum);
  add_counters<OverlapCounters>(kOverlapCounters, s, sum);
  add_each(s.compute_seconds, sum.compute_seconds);
  add_each(s.steps, sum.steps);
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
    add_counters<EndCounters>(kEndCounters, s, sum);
    add_counters<StepTimeCounters>(kStepTimeCounters, s, sum);
    add_each(s.fetched_tokens_total, sum.fetched_tokens_total);
    sum.gen_throughput += s.gen_throughput;
    sum.input_throughput += s.input_throughput;
    sum.last_step_seconds = std::max(sum.last_step_seconds, s.last_step_seconds);
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
