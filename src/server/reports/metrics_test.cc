#include "server/reports/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::HasSubstr;

EngineStats some_engine_stats() {
  EngineStats stats;
  stats.scheduler.num_running = 3;
  stats.scheduler.num_waiting = 2;
  stats.scheduler.num_pages = 100;
  stats.scheduler.num_free_pages = 60;
  stats.scheduler.num_cached_pages = 30;
  stats.scheduler.num_private_pages = 10;
  stats.scheduler.prompt_tokens_total = 1000;
  stats.scheduler.cached_tokens_total = 250;
  stats.fetched_tokens_total = {90, 50, 10};
  stats.tier.emplace().damaged_total = 2;
  stats.tier->num_waiting = {1, 0, 3};
  stats.tier->num_prefills = 2;
  stats.scheduler.num_held = 6;
  stats.tier->tiers[static_cast<size_t>(PageTier::redis)].pages_read_total = 3;
  stats.scheduler.recomputed_tokens_total = 64;
  stats.scheduler.num_retracted_total = 4;
  stats.scheduler.retracted_input_total = 400;
  stats.scheduler.retracted_output_total = 40;
  static_cast<StepCounters&>(stats.steps) = {.num_prefill = 5,
                                             .num_decode = 7,
                                             .num_mixed = 2,
                                             .num_overlapped = 6,
                                             .prefill_compute_tokens = 900,
                                             .prefill_cache_tokens = 260,
                                             .decode_tokens = 70};
  stats.steps.num_retracted_lately = 1;
  stats.gen_throughput = 12.5;
  stats.input_throughput = 1200.5;
  return stats;
}

TEST(Metrics, ShowsEngineServerAndLatencies) {
  EngineInfo info;
  info.served_model_name = "tiny \"one\"";
  info.page_tokens = 32;
  info.weight_bytes = 3 << 29;
  Metrics metrics(info);
  metrics.observe_first_token(from_seconds(0.03));
  metrics.observe_inter_token(from_seconds(0.003));
  metrics.observe_inter_token(from_seconds(0.003));
  metrics.count_http(200);
  metrics.count_http(200);
  metrics.count_http(499);
  RequestSummary summary;
  const TimePoint arrived = TimePoint{} + from_seconds(100);
  summary.times = {.arrived = arrived,
                   .queued = arrived,
                   .first_scheduled = arrived + from_seconds(0.5),
                   .prefill_done = arrived + from_seconds(1.5),
                   .finished = arrived + from_seconds(4.5)};
  metrics.observe_finished(summary);
  summary.times = {.arrived = arrived};  // aborted while it waited
  metrics.observe_finished(summary);

  HttpCounts http;
  http.num_connections = 5;
  const std::string text = metrics.render(some_engine_stats(), http);
  const std::string label = "model_name=\"tiny \\\"one\\\"\"";
  const std::string rank = "dp_rank=\"0\",engine_type=\"unified\"," + label +
                           ",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"";
  const auto of_stage = [&](const std::string& stage) {  // labels are in alphabetical order
    return std::string(rank).insert(rank.find("tp_rank"), "stage=\"" + stage + "\",");
  };
  for (const std::string& line : {
           "hocket:num_running_reqs{" + rank + "} 3\n",
           "hocket:num_queue_reqs{" + rank + "} 2\n",
           "hocket:num_grammar_queue_reqs{" + rank + "} 2\n",
           "hocket:num_prefix_fetch_reqs{" + rank + "} 1\n",
           "hocket:num_decode_prealloc_queue_reqs{" + rank + "} 0\n",
           "hocket:num_decode_transfer_queue_reqs{" + rank + "} 3\n",
           "hocket:num_pages{" + rank + "} 100\n",
           "hocket:num_free_pages{" + rank + "} 60\n",
           "hocket:num_cached_pages{" + rank + "} 30\n",
           "hocket:num_private_pages{" + rank + "} 10\n",
           "hocket:cache_hit_rate{" + rank + "} 0.25\n",
           "hocket:gen_throughput{" + rank + "} 12.5\n",
           "hocket:input_throughput{" + rank + "} 1200.5\n",
           "hocket:page_size{" + rank + "} 32\n",
           "hocket:weight_memory_usage_gb{" + rank + "} 1.5\n",
           "hocket:is_cuda_graph{" + rank + "} 0\n",
           "hocket:num_retracted_reqs{" + rank + "} 1\n",
           "hocket:num_retracted_requests_total{" + rank + "} 4\n",
           "hocket:num_retracted_input_tokens_total{" + rank + "} 400\n",
           "hocket:num_retracted_output_tokens_total{" + rank + "} 40\n",
           "hocket:realtime_tokens_total{" + rank + ",mode=\"prefill_compute\"} 900\n",
           "hocket:realtime_tokens_total{" + rank + ",mode=\"prefill_cache\"} 260\n",
           "hocket:realtime_tokens_total{" + rank + ",mode=\"decode\"} 70\n",
           "hocket:prefill_effective_tokens_total{" + rank + ",mode=\"input\"} 750\n",
           "hocket:prefill_effective_tokens_total{" + rank + ",mode=\"device_hit\"} 100\n",
           "hocket:prefill_effective_tokens_total{" + rank + ",mode=\"storage_hit\"} 150\n",
           "hocket:num_steps_total{" + rank + ",mode=\"prefill\"} 5\n",
           "hocket:num_steps_total{" + rank + ",mode=\"decode\"} 7\n",
           "hocket:num_steps_total{" + rank + ",mode=\"mixed\"} 2\n",
           "hocket:num_overlapped_steps_total{" + rank + "} 6\n",
           "hocket:prompt_tokens_total{" + label + "} 1000\n",
           "hocket:cached_tokens_total{" + label + ",cache_source=\"device\"} 100\n",
           "hocket:cached_tokens_total{" + label + ",cache_source=\"storage_file\"} 90\n",
           "hocket:cached_tokens_total{" + label + ",cache_source=\"storage_redis\"} 50\n",
           "hocket:cached_tokens_total{" + label + ",cache_source=\"storage_peer\"} 10\n",
           "hocket:recomputed_tokens_total{" + label + "} 64\n",
           "hocket:kv_store_damaged_pages_total{" + label + "} 2\n",
           "hocket:kv_file_damaged_pages_total{" + label + "} 2\n",
           "hocket:num_prefill_inflight_queue_reqs{" + label + "} 2\n",
           "hocket:kv_tier_read_pages_total{" + label + ",tier=\"redis\"} 3\n",
           "hocket:http_connections{" + label + "} 5\n",
           "hocket:http_requests_total{" + label + ",status=\"200\"} 2\n",
           "hocket:http_requests_total{" + label + ",status=\"499\"} 1\n",
           "hocket:time_to_first_token_seconds_count{" + label + "} 1\n",
           "hocket:inter_token_latency_seconds_count{" + label + "} 2\n",
           "hocket:e2e_request_latency_seconds_sum{" + label + "} 4.5\n",
           "hocket:queue_time_seconds_sum{" + rank + "} 0.5\n",
           "hocket:per_stage_req_latency_seconds_sum{" + of_stage("prefill_forward") + "} 1\n",
           "hocket:per_stage_req_latency_seconds_sum{" + of_stage("decode_forward") + "} 3\n",
       })
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, HasSubstr("kv_store_damaged_pages_total Stored pages that were damaged"));
  EXPECT_THAT(text,
              HasSubstr("kv_file_damaged_pages_total Old name of kv_store_damaged_pages_total"));
  size_t num_types = 0;
  for (size_t at = 0; (at = text.find("# TYPE hocket:num_steps_total ", at)) != text.npos; ++at)
    ++num_types;
  EXPECT_EQ(num_types, 1u);
  EXPECT_EQ(text.find("# TYPE hocket:kv_tier_read_pages_total "),
            text.rfind("# TYPE hocket:kv_tier_read_pages_total "));
}

TEST(Metrics, RanksTellUnderTheirOwnLabels) {
  EngineInfo info;
  info.served_model_name = "tiny";
  info.num_ranks = 2;
  info.ranks = {{.max_total_tokens = 640}, {.max_total_tokens = 320}};
  Metrics metrics(info);
  RequestSummary summary;
  summary.rank = 1;
  summary.times.arrived = TimePoint(std::chrono::seconds(1));
  summary.times.first_scheduled = TimePoint(std::chrono::seconds(2));
  metrics.observe_finished(summary);
  RankStats busy;
  busy.scheduler.num_running = 3;
  busy.scheduler.generated_tokens_total = 30;
  busy.steps.num_idle = 4;
  busy.tier.emplace().num_prefills = 2;
  RankStats other;
  other.tier = busy.tier;
  other.scheduler.num_running = 1;
  other.scheduler.generated_tokens_total = 5;
  const std::string text = metrics.render(add_up({busy, other}), {});
  const auto labels = [](const char* rank, const char* more = "") {
    return fmt::format(R"({{dp_rank="{0}",engine_type="unified",model_name="tiny",)"
                       R"(moe_ep_rank="{0}",pp_rank="0",tp_rank="0"{1}}})",
                       rank, more);
  };
  for (const std::string& line :
       {"hocket:num_running_reqs" + labels("0") + " 3\nhocket:num_running_reqs" + labels("1") +
            " 1\n",
        "hocket:num_steps_total" + labels("0", R"(,mode="idle")") + " 4\n",
        "hocket:max_total_num_tokens" + labels("0") + " 640\n",
        "hocket:max_total_num_tokens" + labels("1") + " 320\n",
        "hocket:queue_time_seconds_count" + labels("0") + " 0\n",
        "hocket:queue_time_seconds_count" + labels("1") + " 1\n",
        std::string(R"(hocket:num_prefill_inflight_queue_reqs{model_name="tiny"} 2)"),
        std::string(R"(hocket:generation_tokens_total{model_name="tiny"} 35)")})
    EXPECT_THAT(text, HasSubstr(line));
  for (const char* name : {"num_running_reqs", "num_steps_total", "queue_time_seconds",
                           "per_stage_req_latency_seconds"}) {
    const std::string type = fmt::format("# TYPE hocket:{} ", name);
    const size_t at = text.find(type);
    ASSERT_NE(at, text.npos) << name;
    EXPECT_EQ(text.find(type, at + 1), text.npos) << name;
  }
}

}  // namespace
}  // namespace hocket
