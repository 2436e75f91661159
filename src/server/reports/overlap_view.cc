#include "server/reports/overlap_view.h"

#include <string>

#include "compute/overlap/op.h"
#include "server/reports/counter_json.h"

namespace hocket {
namespace {

// Returns the times of one rank. They add up to the time of its steps, except for hidden time,
// which passes beside the others.
Json seconds_json(const OverlapStats& s) {
  Json compute = Json::object();
  for (int op = 0; op < kNumBooked; ++op)
    compute[std::string(op_name(Op{static_cast<uint8_t>(op)}))] =
        s.compute_seconds[static_cast<size_t>(op)];
  Json seconds = Json::object();
  add_counters<OverlapTimes>(kOverlapTimes, s, seconds);
  seconds["compute"] = std::move(compute);
  return seconds;
}

Json steps_json(const OverlapStats& s) {
  Json steps = Json::object();
  for (size_t kind = 0; kind < s.steps.size(); ++kind)
    steps[std::string(plan_kind_name(PlanKind{static_cast<uint8_t>(kind)}))] = s.steps[kind];
  return steps;
}

// Returns the time of steps while experts moved, beside that of like steps before.
Json moving_json(const ExpertMoveStats& moves) {
  return {{"steps", moves.steps_total},
          {"seconds", moves.step_seconds_total},
          {"usual_seconds", moves.usual_seconds_total},
          {"lost_seconds", moves.step_seconds_total - moves.usual_seconds_total}};
}

Json rank_json(const OverlapView::RankEntry& rank) {
  const OverlapStats& s = rank.stats;
  Json json = {{"dp_rank", rank.rank},
               {"plan", {{"prefill", s.plan[0]}, {"decode", s.plan[1]}}},
               {"hidden_share", s.hidden_share()},
               {"hidden_is_estimate", !s.exact_arrival},
               {"seconds", seconds_json(s)},
               {"steps", steps_json(s)}};
  add_counters<OverlapCounters>(kOverlapCounters, s, json);
  json["half_imbalance"] = s.half_imbalance;
  json["moving"] = rank.moves ? moving_json(*rank.moves) : Json();
  return json;
}

Json plan_json(const Plan& plan, const std::string& name) {
  return {{"name", name},
          {"order", plan.order},
          {"parts", plan.parts},
          {"waves", plan.waves},
          {"first_half_64ths", plan.share},
          {"share", plan.share}};  // its name before
}

Json decision_json(const OverlapDecision& d) {
  Json fastest = Json::array();
  for (const TopCandidate& f : d.top_candidates)
    fastest.push_back({{"plan", plan_json(f.plan, f.name)},
                       {"predicted_us", f.predicted_us},
                       {"expected_us", f.expected_us},
                       {"measured_steps", f.num_measured}});
  return {{"phase", phase_name(d.bucket.phase)},
          {"rows", d.bucket.rows},
          {"kv_tokens", d.bucket.kv_tokens},
          {"plan", plan_json(d.plan, d.name)},
          {"finalists", fastest},  // the name before of top_candidates
          {"top_candidates", std::move(fastest)},
          {"text", d.text},
          {"predicted_us", d.predicted_us},
          {"measured_us", d.measured_us},
          {"none_us", d.none_us},
          {"lower_bound_us", d.lower_bound_us},
          {"steps", d.num_steps},
          {"trial_steps", d.num_trial_steps},
          {"changes", d.num_changes}};
}

Json planner_json(const PlannerState& planner) {
  Json decisions = Json::array();
  for (const OverlapDecision& d : planner.decisions) decisions.push_back(decision_json(d));
  return {{"steps", planner.num_steps},
          {"trial_steps", planner.num_trial_steps},
          {"searches", planner.num_searches},
          {"search_seconds", planner.search_seconds},
          {"decisions", std::move(decisions)}};
}

}  // namespace

Json overlap_json(const OverlapView& view) {
  Json ranks = Json::array();
  double hidden = 0, exposed = 0, waiting = 0;
  for (const OverlapView::RankEntry& rank : view.ranks) {
    ranks.push_back(rank_json(rank));
    hidden += rank.stats.hidden_seconds;
    exposed += rank.stats.exposed_seconds;
    waiting += rank.stats.waiting_seconds;
  }
  return {{"overlap", view.choice},
          {"hidden_share", hidden + exposed > 0 ? hidden / (hidden + exposed) : 0.0},
          {"hidden_seconds", hidden},
          {"exposed_seconds", exposed},
          {"waiting_seconds", waiting},
          {"ranks", std::move(ranks)},
          {"planner", view.planner ? planner_json(*view.planner) : Json()}};
}

void add_overlap(MetricSnapshot& out, const OverlapStats& overlap) {
  out.gauge("overlap_hidden_share",
            "Share of all transfer time so far during which this rank computed; an estimate where "
            "the network does not tell when the last byte came",
            overlap.hidden_share());
  for (int op = 0; op < kNumBooked; ++op)
    out.counter(kComputeSecondsName, kComputeSecondsHelp,
                overlap.compute_seconds[static_cast<size_t>(op)],
                {"op", std::string(op_name(Op{static_cast<uint8_t>(op)}))});
  out.counters<OverlapTimes>(kOverlapTimes, overlap);
  for (size_t kind = 0; kind < overlap.steps.size(); ++kind)
    out.counter("overlap_steps_total", "Engine steps by the kind of plan that was played",
                overlap.steps[kind],
                {"plan", std::string(plan_kind_name(PlanKind{static_cast<uint8_t>(kind)}))});
  out.counters<OverlapCounters>(kOverlapCounters, overlap);
  out.gauge("overlap_half_imbalance",
            "Time of the slower half / mean, of the last step in two halves",
            overlap.half_imbalance);
}

}  // namespace hocket
