#include "server/reports/expert_distribution.h"

#include <algorithm>
#include <span>
#include <string>

#include "server/reports/info_json.h"

namespace hocket {
namespace {

Result<void> check_experts(const ExpertStats* stats) {
  if (stats == nullptr) return fail(ErrorCode::invalid_request, "this model has no experts");
  return {};
}

// Returns [layers][experts].
template <class Count>
Json by_layer(std::span<const Count> counts, int num_experts) {
  Json rows = Json::array();
  for (; !counts.empty(); counts = counts.subspan(static_cast<size_t>(num_experts)))
    rows.push_back(counts.first(static_cast<size_t>(num_experts)));
  return rows;
}

Json number_or_null(std::optional<double> number) {
  return number ? Json(*number) : Json(nullptr);
}

// Returns the balancedness of each layer; null for a layer without experts.
Json evenness(std::span<const uint64_t> loads, int columns) {
  Json rows = Json::array();
  for (; !loads.empty(); loads = loads.subspan(static_cast<size_t>(columns)))
    rows.push_back(number_or_null(balancedness(loads.first(static_cast<size_t>(columns)))));
  return rows;
}

Json passes_json(const ExpertRecord& record) {
  Json passes = Json::array();
  for (int i = 0; i < record.num_kept(); ++i) {
    const ExpertRecord::Pass& pass = record.pass(i);
    passes.push_back({{"forward_pass_id", pass.step},
                      {"rank", pass.rank},
                      {"num_tokens", pass.num_tokens},
                      {"logical_count", by_layer(record.counts_of_pass(i), record.num_experts)}});
  }
  return passes;
}

// Returns the places of a layer beyond one for each expert.
int num_replicas(const Placement& placement) {
  return placement.num_places() - placement.num_experts();
}

// Returns the record without the passes of `per_pass`.
Json record_json(const ExpertStats& stats, const ExpertRecord& record) {
  const Placements places = stats.placement();
  const Placement& placement = places.first();
  const int num_ranks = placement.num_ranks();
  Json expert_rank = Json::array();
  for (int e = 0; e < record.num_experts; ++e) expert_rank.push_back(placement.rank_of(e));
  Json place_rank = Json::array();
  for (int p = 0; p < placement.num_places(); ++p) place_rank.push_back(placement.rank_at(p));
  Json map = Json::array();
  for (int layer = 0; layer < record.num_layers; ++layer) {
    Json row = Json::array();
    for (int place = 0; place < placement.num_places(); ++place)
      row.push_back(places.at(layer).expert_at(place));
    map.push_back(std::move(row));
  }
  const bool per_pass = record.mode == ExpertRecordMode::per_pass;
  return {
      {"rank", stats.rank()},
      {"mode", per_pass ? "per_pass" : "stat"},
      {"recording", stats.recording()},
      {"num_steps", record.num_steps},
      {"num_tokens", record.num_tokens},
      {"expert_rank", std::move(expert_rank)},
      {"place_rank", std::move(place_rank)},
      {"place_expert", std::move(map)},
      {"average_utilization_rate_over_window",
       number_or_null(balancedness(record.rank_counts, num_ranks))},
      {"layer_balancedness",
       {{"ranks", evenness(record.rank_counts, num_ranks)},
        {"experts", evenness(record.counts, record.num_experts)}}},
      {"logical_count", by_layer(std::span<const uint64_t>(record.counts), record.num_experts)}};
}

}  // namespace

Result<ExpertStats::Start> parse_expert_start(const Json& json) {
  ExpertStats::Start start;
  Fields fields(json);
  std::string mode = "stat";
  fields.read("mode", mode);
  const bool sized = fields.read("buffer_size", start.buffer_size, 1, 1 << 30);
  if (mode == "per_pass")
    start.mode = ExpertRecordMode::per_pass;
  else if (mode != "stat")
    fields.fail_field("mode", fmt::format("mode is '{}', must be stat or per_pass", mode));
  else if (sized)
    fields.fail_field("buffer_size",
                      "buffer_size is the number of passes to keep, and stat keeps none",
                      R"("mode": "per_pass")");
  return fields.finish_with(start);
}

Result<Json> start_expert_record(ExpertStats* stats, std::string_view body) {
  HOCKET_TRY_VOID(check_experts(stats));
  Json json = Json::object();
  if (!body.empty()) {
    HOCKET_TRY(json, parse_json_object(body));
  }
  HOCKET_TRY(const ExpertStats::Start start, parse_expert_start(json));
  HOCKET_TRY_VOID(stats->start(start));
  return Json{{"recording", true}};
}

Result<Json> stop_expert_record(ExpertStats* stats) {
  HOCKET_TRY_VOID(check_experts(stats));
  HOCKET_TRY_VOID(stats->stop());
  return Json{{"recording", false}};
}

Result<Json> dump_expert_record(ExpertStats* stats) {
  HOCKET_TRY_VOID(check_experts(stats));
  HOCKET_TRY(const ExpertRecord record, stats->take());
  Json out = record_json(*stats, record);
  if (record.mode == ExpertRecordMode::per_pass) out["records"] = passes_json(record);
  return out;
}

Result<Json> look_at_expert_record(const ExpertStats* stats,
                                   const std::optional<ExpertMoveStats>& moves) {
  HOCKET_TRY_VOID(check_experts(stats));
  const std::optional<ExpertRecord> record = stats->snapshot();
  return Json{{"recording", stats->recording()},
              {"record", record ? record_json(*stats, *record) : Json()},
              {"replicas", num_replicas(stats->placement().first())},
              {"moves", moves ? to_json(*moves) : Json()}};
}

}  // namespace hocket
