#include "server/reports/speculation_view.h"

#include <string>
#include <utility>

#include "policy/scheduler/draft_figures.h"
#include "policy/speculation/gate_text.h"

namespace hocket {
namespace {

Json choice_json(const GateChoice& choice) {
  return {{"drafts", choice.num_drafts},
          {"tokens", choice.tokens},
          {"time_ratio", choice.time_ratio},
          {"times", choice.time_ratio},  // its name before
          {"measured_steps", choice.num_measured}};
}

Json bucket_json(const GateState::Bucket& bucket, bool is_fixed) {
  return {{"answers", bucket.num_answers},
          {"keys_per_answer", bucket.answer_keys},
          {"keys", bucket.answer_keys},  // its name before
          {"steps", bucket.num_steps},
          {"draft_steps", bucket.num_draft_steps},
          {"trial_steps", bucket.num_trial_steps},
          {"no_draft_us", bucket.plain_us},
          {"plain_us", bucket.plain_us},  // its name before
          {"usual", choice_json(bucket.usual)},
          {"best", choice_json(bucket.best)},
          {"text", text_of(bucket, is_fixed)}};
}

// Lists the kinds of drafts that were made, each with its acceptance by position.
Json acceptance_json(const GateState& gate) {
  Json kinds = Json::array();
  for (size_t kind = 0; kind < gate.acceptance.size(); ++kind) {
    Json shares = Json::array();
    for (size_t i = 0; i < gate.acceptance[kind].size() && gate.num_seen[kind][i] > 0; ++i)
      shares.push_back(gate.acceptance[kind][i]);
    if (!shares.empty()) kinds.push_back({{"kind", kind}, {"shares", std::move(shares)}});
  }
  return kinds;
}

// null: not known yet, which is no gain of 0.
Json seconds_json(const GateState& gate, double us) {
  return gate.knows_gain ? Json(us / 1e6) : Json(nullptr);
}

Json drafts_json(const SpeculationView::RankEntry& rank) {
  const GateTotals& totals = rank.gate.totals;
  Json sizes = Json::array();
  for (const GateState::Bucket& bucket : rank.gate.buckets)
    sizes.push_back(bucket_json(bucket, rank.gate.is_fixed));
  return {{"dp_rank", rank.rank},
          {"fixed", rank.gate.is_fixed},
          {"steps", totals.num_steps},
          {"draft_steps", totals.num_draft_steps},
          {"trial_steps", totals.num_trial_steps},
          {"drafts", num_drafts_of(rank.counts)},
          {"accepted", num_held_of(rank.counts)},
          {"accept_length", accept_length_of(rank.counts)},
          {"accept_rate", accept_rate_of(rank.counts)},
          {"gained_seconds", seconds_json(rank.gate, totals.gained_us)},
          {"trial_seconds", seconds_json(rank.gate, totals.trial_us)},
          {"acceptance", acceptance_json(rank.gate)},
          {"sizes", std::move(sizes)}};
}

}  // namespace

Json speculation_json(const SpeculationView& view) {
  Json ranks = Json::array();
  GateState all{.knows_gain = true};
  for (const SpeculationView::RankEntry& rank : view.ranks) {
    ranks.push_back(drafts_json(rank));
    all.totals.gained_us += rank.gate.totals.gained_us;
    all.knows_gain &= rank.gate.knows_gain;
  }
  return {{"algorithm", view.algorithm},
          {"max_drafts", view.max_drafts},
          {"most_drafts", view.max_drafts},  // its name before
          {"gained_seconds", seconds_json(all, all.totals.gained_us)},
          {"ranks", std::move(ranks)}};
}

void add_speculation(MetricSnapshot& out, const SchedulerCounters& counts) {
  out.gauge("spec_accept_length",
            "Tokens that an answer with drafts gets from a step, mean of all so far; 0: no drafts",
            accept_length_of(counts));
  out.gauge("spec_accept_rate", "Share of all drafts so far that were accepted",
            accept_rate_of(counts));
  out.counter("spec_verified_total", "Times that an answer had drafts in a step",
              counts.num_verified_total);
  const char* drafts_help = "Drafts that steps verified, by position behind the known tokens";
  for (size_t i = 0; i < counts.drafted_total.size(); ++i)
    out.counter("spec_drafts_total", drafts_help, counts.drafted_total[i],
                {"position", std::to_string(i)});
  for (size_t i = 0; i < counts.accepted_total.size(); ++i)
    out.counter("spec_accepted_total",
                "Drafts that were accepted, by position behind the known tokens: each saved a step",
                counts.accepted_total[i], {"position", std::to_string(i)});
}

}  // namespace hocket
