#include "server/page/live_view.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "server/reports/counter_json.h"
#include "server/reports/info_json.h"

namespace hocket {
namespace {

// Lists the places from which this rank reads pages.
Json tiers_json(const RankStats& rank) {
  Json tiers = Json::array();
  if (!rank.tier) return tiers;
  for (size_t i = 0; i < rank.tier->tiers.size(); ++i)
    if (const PageTierStats& tier = rank.tier->tiers[i]; tier.exists) {
      tiers.push_back({{"name", kPageTierNames[i]},
                       {"unavailable", tier.away},
                       {"away", tier.away}});  // its name before
      add_counters<PageTierCounters>(kPageTierCounters, tier, tiers.back());
    }
  return tiers;
}

Json rank_json(const RankStats& rank, size_t number) {
  const SchedulerStats& s = rank.scheduler;
  const OverlapStats& o = rank.overlap;
  Json json = {
      {"dp_rank", number},
      {"running", s.num_running},
      {"waiting", s.num_waiting},
      {"held", s.num_held},
      {"waiting_tokens", s.num_waiting_tokens},
      {"pages",
       {{"all", s.num_pages},
        {"free", s.num_free_pages},
        {"cached", s.num_cached_pages},
        {"private", s.num_private_pages}}},
      {"window_pages",
       {{"all", s.num_window_pages},
        {"free", s.num_free_window_pages},
        {"cached", s.num_cached_window_pages}}},
      {"states",
       {{"all", s.num_states}, {"free", s.num_free_states}, {"cached", s.num_cached_states}}},
      {"token_usage", s.token_usage},
      {"used_tokens", s.num_used_tokens},
      {"gen_throughput", rank.gen_throughput},
      {"prompt_tokens_total", s.prompt_tokens_total},
      {"cached_tokens_total", s.cached_tokens_total},
      {"recomputed_tokens_total", s.recomputed_tokens_total},
      {"generated_tokens_total", s.generated_tokens_total},
      {"retracted_total", s.num_retracted_total},
      {"evicted_pages_total", s.num_evicted_pages_total},
      {"steps_total", rank.steps.num_prefill + rank.steps.num_decode + rank.steps.num_mixed},
      {"last_step_ms", rank.last_step_seconds * 1e3},
      {"seconds_since_last_step", rank.seconds_since_last_step},
      {"hidden_seconds_total", o.hidden_seconds},
      {"exposed_seconds_total", o.exposed_seconds},
      {"waiting_seconds_total", o.waiting_seconds},
      {"step_seconds_total", o.step_seconds},
      {"hidden_share", o.hidden_share()},
      {"plan", {{"prefill", o.plan[0]}, {"decode", o.plan[1]}}},
      {"tiers", tiers_json(rank)}};
  add_counters<EndCounters>(kEndCounters, rank, json);
  return json;
}

std::string_view state_name(RequestSnapshot::Where where) {
  switch (where) {
    case RequestSnapshot::Where::held:
      return "held";
    case RequestSnapshot::Where::waiting:
      return "waiting";
    case RequestSnapshot::Where::prefilling:
      return "prompt";
    case RequestSnapshot::Where::running:
      return "answer";
  }
  return "waiting";
}

// If the engine has not reported the request, its state depends on whether a token was sampled.
Json text_json(const LiveText& text, const RequestStatus* at, TimePoint now) {
  const bool begun = text.has_begun;
  Json out = {{"id", text.id},
              {"index", text.index},
              {"api", text.api},
              {"stream", text.stream},
              {"state", begun           ? "answer"
                        : at == nullptr ? "waiting"
                                        : state_name(at->seen.where)},
              {"age_seconds", to_seconds(now - text.received)},
              {"prompt_tokens", text.prompt_tokens},
              {"generated_tokens", text.generated_tokens},
              {"max_tokens", text.max_tokens},
              {"dp_rank", at == nullptr ? Json() : Json(at->rank)},
              {"computed_tokens", begun ? text.prompt_tokens : 0},
              {"cached_tokens", 0},
              {"retractions", 0}};
  if (at == nullptr) return out;
  if (!begun) out["computed_tokens"] = at->seen.computed_tokens;
  out["cached_tokens"] = at->seen.cached_tokens;
  out["retractions"] = at->seen.num_retractions;
  return out;
}

std::string_view finish_name(FinishReason finish) {
  switch (finish) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
    default:
      return "error";
  }
}

// Returns the time between two moments in ms; null if one of them was never reached.
Json ms(TimePoint from, TimePoint to) {
  if (from == TimePoint{} || to == TimePoint{}) return nullptr;
  return std::round(std::max(0.0, to_seconds(to - from)) * 1e6) / 1e3;
}

Json ended_json(const EndedText& text, TimePoint now) {
  const RequestTimes& t = text.times;
  return {{"number", text.number},
          {"id", text.id},
          {"index", text.index},
          {"api", text.api},
          {"finish", finish_name(text.finish)},
          {"dp_rank", text.rank},
          {"ended_seconds_ago", to_seconds(now - text.ended)},
          {"prompt_tokens", text.prompt_tokens},
          {"cached_tokens", text.cached_tokens},
          {"generated_tokens", text.generated_tokens},
          {"retractions", text.num_retractions},
          {"text_ms", ms(text.received, t.arrived)},
          {"queue_ms", ms(t.arrived, t.first_scheduled)},
          {"prefill_ms", ms(t.first_scheduled, t.prefill_done)},
          {"decode_ms", ms(t.prefill_done, t.finished)},
          {"ttft_ms", ms(text.received, text.first_token)},
          {"total_ms", ms(text.received, text.ended)}};
}

}  // namespace

Json live_json(const LiveView& view, TimePoint now) {
  Json ranks = Json::array();
  for (const RankStats& rank : view.stats.per_rank())
    ranks.push_back(rank_json(rank, ranks.size() + static_cast<size_t>(view.first_rank)));
  std::unordered_map<RequestId, const RequestStatus*> snapshots;
  for (const RequestStatus& at : view.snapshots) snapshots.emplace(at.seen.id, &at);
  Json requests = Json::array();
  for (const LiveText& text : view.texts) {
    const auto at = snapshots.find(text.request);
    requests.push_back(text_json(text, at == snapshots.end() ? nullptr : at->second, now));
  }
  Json ended = Json::array();
  for (const EndedText& text : view.ended) ended.push_back(ended_json(text, now));
  return {{"clock_seconds", to_seconds(now.time_since_epoch())},
          {"ready", view.is_ready},
          {"why_not_ready", view.is_ready ? Json() : Json(view.not_ready.message)},
          {"num_requests", view.num_texts},
          {"requests", std::move(requests)},
          {"ended", std::move(ended)},
          {"ranks", std::move(ranks)}};
}

}  // namespace hocket
