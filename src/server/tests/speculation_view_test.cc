// The reports of drafts: JSON for people, series for Prometheus.
#include "server/reports/speculation_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/reports/metrics.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

SpeculationView some_speculation() {
  GateState gate;
  gate.totals = {.num_steps = 900,
                 .num_draft_steps = 800,
                 .num_trial_steps = 12,
                 .gained_us = 2e6,
                 .trial_us = -5e5};
  gate.knows_gain = true;
  gate.buckets = {
      {.num_answers = 1,
       .answer_keys = 1024,
       .num_steps = 900,
       .num_draft_steps = 800,
       .num_trial_steps = 12,
       .usual = {.num_drafts = 2, .tokens = 2.5, .time_ratio = 1.25, .num_measured = 15},
       .best = {.num_drafts = 3, .tokens = 2.75, .time_ratio = 2, .num_measured = 4},
       .plain_us = 5000}};
  gate.acceptance[2] = {0.75, 0.5};
  gate.num_seen[2] = {30, 20};
  SchedulerCounters counts;
  counts.num_verified_total = 800;
  counts.drafted_total = {800, 500, 300};
  counts.accepted_total = {700, 400, 100};
  return {.algorithm = "NGRAM",
          .max_drafts = 8,
          .ranks = {{.rank = 0, .gate = gate, .counts = counts}}};
}

TEST(SpeculationView, IsAnsweredAsJson) {
  TestServer server;
  EXPECT_EQ(server.get("/speculation"), Json::parse(R"({
    "algorithm": "none", "max_drafts": 0, "most_drafts": 0, "gained_seconds": 0.0, "ranks": []})"));
  server.engine.speculated.write(some_speculation());
  EXPECT_EQ(server.get("/speculation"), Json::parse(R"({
    "algorithm": "NGRAM", "max_drafts": 8, "most_drafts": 8, "gained_seconds": 2.0,
    "ranks": [{
      "dp_rank": 0, "fixed": false, "steps": 900, "draft_steps": 800, "trial_steps": 12,
      "drafts": 1600, "accepted": 1200, "accept_length": 2.5, "accept_rate": 0.75,
      "gained_seconds": 2.0, "trial_seconds": -0.5,
      "acceptance": [{"kind": 2, "shares": [0.75, 0.5]}],
      "sizes": [{"answers": 1, "keys_per_answer": 1024, "keys": 1024, "steps": 900,
        "draft_steps": 800, "trial_steps": 12, "no_draft_us": 5000.0, "plain_us": 5000.0,
        "usual": {"drafts": 2, "tokens": 2.5, "time_ratio": 1.25, "times": 1.25,
                  "measured_steps": 15},
        "best": {"drafts": 3, "tokens": 2.75, "time_ratio": 2.0, "times": 2.0,
                 "measured_steps": 4},
        "text": "1 answer of up to 1024 tokens: 2 drafts give 2.50 tokens an answer in 1.25 times )"
                                                    R"(the time of a step without"}]}]})"));
  EXPECT_EQ(server.ask("POST", "/speculation", "{}").status, 405);
}

// With a fixed number there may be no step to compare with, and 0 would be a wrong figure.
TEST(SpeculationView, OfAnUnknownGainSaysNull) {
  TestServer server;
  SpeculationView view = some_speculation();
  view.ranks[0].gate.knows_gain = false;
  server.engine.speculated.write(view);
  const Json told = server.get("/speculation");
  EXPECT_EQ(told["gained_seconds"], nullptr);
  EXPECT_EQ(told["ranks"][0]["gained_seconds"], nullptr);
  EXPECT_EQ(told["ranks"][0]["trial_seconds"], nullptr);
}

// Every rank has the series, even if it has no drafts.
TEST(SpeculationView, IsInTheMetrics) {
  EngineInfo info;
  info.ranks.resize(2);
  RankStats busy;
  busy.scheduler.num_verified_total = 100;
  busy.scheduler.drafted_total = {100, 100};
  busy.scheduler.accepted_total = {90, 60};
  const std::string text = Metrics(info).render(add_up({busy, {}}), {});
  EXPECT_THAT(text, HasSubstr("tp_rank=\"0\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE hocket:spec_accept_length gauge\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE hocket:spec_accept_rate gauge\n"));
  EXPECT_THAT(text, HasSubstr("tp_rank=\"0\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("tp_rank=\"0\",position=\"1\"} 60\n"));
  EXPECT_THAT(text, HasSubstr("moe_ep_rank=\"1\",pp_rank=\"0\",tp_rank=\"0\",position=\"7\"} 0\n"));
}

}  // namespace
}  // namespace hocket
