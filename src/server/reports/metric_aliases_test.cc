#include "server/reports/metric_aliases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/reports/metrics.h"

namespace hocket {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string rendered(MetricCompat compat) {
  EngineInfo info;
  info.served_model_name = "tiny";
  Metrics metrics(info, 0, compat);
  RankStats rank;
  rank.scheduler.num_running = 3;
  rank.scheduler.token_usage = 0.25;
  rank.scheduler.prompt_tokens_total = 90;
  rank.scheduler.num_verified_total = 10;
  rank.scheduler.drafted_total = {10, 6};
  rank.scheduler.accepted_total = {8, 4};
  RequestSummary summary;
  summary.finish = FinishReason::length;
  metrics.observe_finished(summary);
  metrics.observe_first_token(std::chrono::milliseconds(30));
  return metrics.render(add_up({rank, rank}), {});
}

TEST(MetricAliases, AreNotThereUnlessAskedFor) {
  EXPECT_THAT(rendered({}), Not(HasSubstr("sglang:")));
  EXPECT_THAT(rendered({}), Not(HasSubstr("vllm:")));
}

TEST(MetricAliases, SglangsNamesHaveItsPrefixAndOurLabels) {
  const std::string text = rendered({.sglang = true});
  EXPECT_THAT(text, HasSubstr("# TYPE sglang:num_running_reqs gauge\n"));
  EXPECT_THAT(text, HasSubstr("sglang:num_running_reqs{dp_rank=\"0\",engine_type=\"unified\""));
  EXPECT_THAT(text, HasSubstr("sglang:time_to_first_token_seconds_bucket{model_name=\"tiny\""));
  EXPECT_THAT(text, HasSubstr("hocket:num_running_reqs{"));
  EXPECT_THAT(text, ContainsRegex("sglang:spec_accept_length\\{dp_rank=\"0\"[^\n]* 2.2\n"));
  EXPECT_THAT(text, ContainsRegex("sglang:spec_accept_rate\\{dp_rank=\"0\"[^\n]* 0.75\n"));
  EXPECT_THAT(text, Not(HasSubstr("vllm:")));
}

TEST(MetricAliases, VllmsNamesHaveItsLabels) {
  const std::string text = rendered({.vllm = true});
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"tiny\",engine=\"0\"} 3\n",
        "vllm:kv_cache_usage_perc{model_name=\"tiny\",engine=\"0\"} 0.25\n",
        "vllm:prompt_tokens_total{model_name=\"tiny\",engine=\"0\"} 180\n",
        "vllm:request_success_total{model_name=\"tiny\",engine=\"0\",finished_reason=\"length\"} "
        "1\n",
        "vllm:spec_decode_num_drafts_total{model_name=\"tiny\",engine=\"0\"} 10\n",
        "vllm:spec_decode_num_draft_tokens_total{model_name=\"tiny\",engine=\"0\"} 16\n",
        "vllm:spec_decode_num_accepted_tokens_total{model_name=\"tiny\",engine=\"0\"} 12\n",
        "# TYPE vllm:request_queue_time_seconds histogram\n",
        "# TYPE vllm:request_prefill_time_seconds histogram\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"tiny\",engine=\"0\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(MetricAliases, AreNamedByAList) {
  EXPECT_FALSE(parse_metric_compat("")->sglang);
  EXPECT_TRUE(parse_metric_compat("sglang,vllm")->vllm);
  EXPECT_TRUE(parse_metric_compat("sglang,vllm")->sglang);
  EXPECT_EQ(parse_metric_compat("tgi").error().code, ErrorCode::bad_value);
}

}  // namespace
}  // namespace hocket
