// The reports of overlap: JSON for people, series for Prometheus.
#include "server/reports/overlap_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <string>

#include "server/reports/metrics.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

OverlapStats some_overlap_stats() {
  OverlapStats s;
  static_cast<OverlapTimes&>(s) = {.step_seconds = 20,
                                   .other_seconds = 0.5,
                                   .exposed_seconds = 1,
                                   .waiting_seconds = 2,
                                   .idle_seconds = 0.125,
                                   .hidden_seconds = 3};
  static_cast<OverlapCounters&>(s) = {.trial_steps = 2, .unknown_plans = 4};
  s.steps = {5, 6, 7};
  s.half_imbalance = 1.25;
  s.plan = {"two-batch, four-phase", "none"};
  s.exact_arrival = true;
  for (size_t op = 0; op < s.compute_seconds.size(); ++op)
    s.compute_seconds[op] = 0.25 * static_cast<double>(op + 1);
  return s;
}

OverlapView some_view() {
  OverlapView view{.choice = "auto"};
  view.ranks = {{.rank = 0, .stats = some_overlap_stats()},
                {.rank = 1, .stats = some_overlap_stats()}};
  view.ranks[1].stats.exposed_seconds = 0;
  view.ranks[1].stats.exact_arrival = false;
  view.ranks[1].moves.emplace();
  static_cast<ExpertMoveCounters&>(*view.ranks[1].moves) = {
      .steps_total = 40, .step_seconds_total = 0.75, .usual_seconds_total = 0.5};
  view.planner = PlannerState{.num_steps = 900, .num_searches = 30};
  view.planner->search_seconds = 0.5;
  view.planner->decisions.push_back(
      {.bucket = {Phase::prefill, 1024, 2048},
       .plan = {.order = 3, .parts = 2, .share = 31},
       .name = "two-batch, an order",
       .top_candidates =
           {{.name = "none", .predicted_us = 120, .expected_us = 130, .num_measured = 9}},
       .text = "prefill, 1024 rows: two-batch",
       .predicted_us = 100,
       .measured_us = 101,
       .none_us = 130,
       .lower_bound_us = 90,
       .num_steps = 40,
       .num_trial_steps = 5,
       .num_changes = 2});
  view.planner->decisions.push_back({.bucket = {Phase::decode, 64, 100}, .text = "decode: none"});
  return view;
}

TEST(OverlapView, IsAnsweredAsJson) {
  TestServer server;
  const Json nothing = server.get("/overlap");
  EXPECT_EQ(nothing["ranks"], Json::array());
  EXPECT_EQ(nothing["planner"], Json());
  EXPECT_EQ(nothing["hidden_share"], 0.0);
  server.engine.overlapped.write(some_view());
  const Json view = server.get("/overlap");
  const Json decisions = view["planner"]["decisions"];
  EXPECT_EQ(view["overlap"], "auto");
  EXPECT_EQ(view["hidden_seconds"], 6.0);
  EXPECT_EQ(view["exposed_seconds"], 1.0);
  EXPECT_EQ(view["waiting_seconds"], 4.0);
  EXPECT_EQ(view["hidden_share"], 6.0 / 7);
  EXPECT_EQ(view["ranks"][0], Json::parse(R"({
    "dp_rank": 0, "plan": {"prefill": "two-batch, four-phase", "decode": "none"},
    "hidden_share": 0.75, "hidden_is_estimate": false,
    "seconds": {"step": 20.0, "other": 0.5, "beside": 0.5, "exposed": 1.0, "waiting": 2.0,
      "idle": 0.125, "hidden": 3.0,
      "compute": {"attn_in": 0.25, "attn_core": 0.5, "mlp": 0.75,
        "gate": 1.0, "dispatch_start": 1.25, "shared": 1.5, "dispatch_wait": 1.75, "experts": 2.0,
        "combine_start": 2.25, "combine_wait": 2.5, "delta_core": 2.75}},
    "steps": {"none": 5, "single-batch": 6, "two-batch": 7}, "trial_steps": 2, "shadow_steps": 2,
    "unknown_plans": 4, "half_imbalance": 1.25, "moving": null})"));
  EXPECT_EQ(view["ranks"][1]["moving"], Json::parse(R"({
    "steps": 40, "seconds": 0.75, "usual_seconds": 0.5, "lost_seconds": 0.25})"));
  EXPECT_EQ(view["ranks"][1]["dp_rank"], 1);
  EXPECT_EQ(view["ranks"][1]["hidden_share"], 1.0);
  EXPECT_EQ(view["ranks"][1]["hidden_is_estimate"], true);
  EXPECT_EQ(view["planner"]["steps"], 900);
  EXPECT_EQ(view["planner"]["searches"], 30);
  EXPECT_EQ(decisions[0], Json::parse(R"({
    "phase": "prefill", "rows": 1024, "kv_tokens": 2048,
    "plan": {"name": "two-batch, an order", "order": 3, "parts": 2, "waves": 1,
             "first_half_64ths": 31, "share": 31},
    "finalists": [{"plan": {"name": "none", "order": 0, "parts": 1, "waves": 1,
                            "first_half_64ths": 32, "share": 32},
                   "predicted_us": 120.0, "expected_us": 130.0, "measured_steps": 9}],
    "top_candidates": [{"plan": {"name": "none", "order": 0, "parts": 1, "waves": 1,
                                 "first_half_64ths": 32, "share": 32},
                        "predicted_us": 120.0, "expected_us": 130.0, "measured_steps": 9}],
    "text": "prefill, 1024 rows: two-batch",
    "predicted_us": 100.0, "measured_us": 101.0, "none_us": 130.0, "lower_bound_us": 90.0,
    "steps": 40, "trial_steps": 5, "changes": 2})"));
  EXPECT_EQ(decisions[1]["phase"], "decode");
  EXPECT_EQ(server.ask("POST", "/overlap", "{}").status, 405);
}

TEST(OverlapView, IsTold) {
  const prometheus::Labels first{{"dp_rank", "0"}}, second{{"dp_rank", "1"}};
  MetricSnapshot ranks(first), other(second);
  add_overlap(ranks, some_overlap_stats());
  add_overlap(other, {});
  ranks.append(std::move(other));
  std::vector<prometheus::MetricFamily> families;
  ranks.move_to(families);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  for (const char* line :
       {R"(overlap_hidden_share{dp_rank="0"} 0.75)", R"(overlap_hidden_share{dp_rank="1"} 0)",
        R"(exchange_hidden_seconds_total{dp_rank="0"} 3)",
        R"(exchange_exposed_seconds_total{dp_rank="0"} 1)",
        R"(rank_waiting_seconds_total{dp_rank="0"} 2)",
        R"(step_compute_seconds_total{dp_rank="0",op="attn_in"} 0.25)",
        R"(step_compute_seconds_total{dp_rank="0",op="combine_wait"} 2.5)",
        R"(step_compute_seconds_total{dp_rank="0",op="other"} 0.5)",
        R"(step_idle_seconds_total{dp_rank="0"} 0.125)",
        R"(overlap_steps_total{dp_rank="0",plan="none"} 5)",
        R"(overlap_steps_total{dp_rank="0",plan="single-batch"} 6)",
        R"(overlap_steps_total{dp_rank="0",plan="two-batch"} 7)",
        R"(overlap_steps_total{dp_rank="1",plan="two-batch"} 0)",
        R"(overlap_trial_steps_total{dp_rank="0"} 2)",
        R"(overlap_shadow_steps_total{dp_rank="0"} 2)",
        R"(overlap_plan_refused_total{dp_rank="0",reason="unknown"} 4)",
        R"(overlap_half_imbalance{dp_rank="0"} 1.25)"})
    EXPECT_THAT(out.str(), HasSubstr(fmt::format("\nhocket:{}\n", line)));
}

// Every rank has the series, even if it has nothing to overlap.
TEST(OverlapView, IsInTheMetrics) {
  EngineInfo info;
  info.ranks.resize(2);
  RankStats busy;
  busy.overlap = some_overlap_stats();
  const std::string text = Metrics(info).render(add_up({busy, {}}), {});
  EXPECT_THAT(text, HasSubstr("# TYPE hocket:overlap_steps_total counter\n"));
  EXPECT_THAT(text, HasSubstr("tp_rank=\"0\",plan=\"two-batch\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("tp_rank=\"0\",plan=\"two-batch\"} 0\n"));
}

}  // namespace
}  // namespace hocket
