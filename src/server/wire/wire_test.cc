// The parts of the wire that need no socket: error bodies, keys, targets, events, metrics, health.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "server/access/auth.h"
#include "server/error_map.h"
#include "server/views/health.h"
#include "server/views/info_json.h"
#include "server/views/metrics.h"
#include "server/wire/request_target.h"
#include "server/wire/sse.h"

namespace hocket {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ErrorMap, SpeaksOpenAi) {
  const auto body = nlohmann::json::parse(error_body(
      error(ErrorCode::context_length_exceeded, "prompt 900 + max_tokens 200 > 1024 \"\xff\"")
          .with_fix("max_tokens 124")
          .with_param("max_tokens")));
  const auto& e = body.at("error");
  EXPECT_EQ(e.at("type"), "invalid_request_error");
  EXPECT_EQ(e.at("code"), "context_length_exceeded");
  EXPECT_EQ(e.at("param"), "max_tokens");
  EXPECT_EQ(e.at("hint"), "max_tokens 124");
  EXPECT_THAT(e.at("message").get<std::string>(), HasSubstr("900 + max_tokens 200"));
  EXPECT_TRUE(nlohmann::json::parse(error_body(error(ErrorCode::internal, "x")))["error"]["param"]
                  .is_null());
}

TEST(ErrorMap, EachApiHasItsForm) {
  EXPECT_EQ(error_form_of("/v1/messages/count_tokens"), ErrorForm::anthropic);
  EXPECT_EQ(error_form_of("/v1/responses"), ErrorForm::responses);
  EXPECT_EQ(error_form_of("/v1/chat/completions"), ErrorForm::openai);
  const Error e = error(ErrorCode::loading, "not yet");
  const auto body = nlohmann::json::parse(error_body(e, ErrorForm::anthropic));
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["error"]["type"], "overloaded_error");
  EXPECT_EQ(body["error"]["message"], "not yet");
  EXPECT_EQ(error_body(e, ErrorForm::responses), error_body(e));
  EXPECT_TRUE(error_events(e, ErrorForm::openai).ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(error_events(e, ErrorForm::anthropic).starts_with("event: error\ndata: {\"type\""));
  SseReader reader;
  const auto events = reader.feed(error_events(e, ErrorForm::responses));
  ASSERT_EQ(events.size(), 1u);
  const auto event = nlohmann::json::parse(events[0]);
  EXPECT_EQ(event["type"], "error");
  EXPECT_EQ(event["code"], "loading");
}

TEST(ErrorMap, GivesEachKindItsStatus) {
  const std::pair<ErrorCode, int> expected[] = {
      {ErrorCode::invalid_request, 400}, {ErrorCode::context_length_exceeded, 400},
      {ErrorCode::request_too_big, 400}, {ErrorCode::no_tokenizer, 400},
      {ErrorCode::template_failed, 400}, {ErrorCode::unauthorized, 401},
      {ErrorCode::not_found, 404},       {ErrorCode::method_not_allowed, 405},
      {ErrorCode::request_timeout, 408}, {ErrorCode::payload_too_large, 413},
      {ErrorCode::queue_full, 429},      {ErrorCode::bad_logits, 500},
      {ErrorCode::internal, 500},        {ErrorCode::bad_safetensors, 500},
      {ErrorCode::loading, 503},         {ErrorCode::shutting_down, 503},
      {ErrorCode::watchdog, 503},
  };
  for (const auto& [code, status] : expected)
    EXPECT_EQ(http_status(code), status) << code_name(code);
  EXPECT_THAT(error_headers(ErrorCode::queue_full), ElementsAre(testing::Pair("Retry-After", "1")));
  EXPECT_THAT(error_headers(ErrorCode::loading), testing::SizeIs(1));
  EXPECT_THAT(error_headers(ErrorCode::invalid_request), IsEmpty());
}

TEST(Auth, ComparesWholeKeys) {
  EXPECT_TRUE(same_key("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "bbc", "abcabc"})
    EXPECT_FALSE(same_key(other, "abc")) << other;
}

TEST(RequestTarget, IsDecodedAndChecked) {
  const auto t = parse_request_target("/v1/mod%C3%A9ls?x=%20");
  ASSERT_TRUE(t);
  EXPECT_EQ(t->path, "/v1/mod\xC3\xA9ls");
  EXPECT_EQ(t->query, "x=%20");
  EXPECT_EQ(parse_request_target("http://h:1/a?b")->path, "/a");
  EXPECT_EQ(parse_request_target("http://h:1")->path, "/");
  EXPECT_EQ(parse_request_target("http://h?q")->query, "q");
  for (const char* bad : {"", "a", "/a%2", "/%", "/%g0", "/%ff", "/%00", "http:/", "ftp://h/a"})
    EXPECT_FALSE(parse_request_target(bad)) << bad;
  for (const char* path : {"/", "/v1/a b", "/a?b#c", "/100%25", "/mod\xC3\xA9ls/:@&=+$,;!'()*~"})
    EXPECT_EQ(parse_request_target(encode_path(path))->path, path);
  EXPECT_EQ(encode_path("/v1/resp_1?%"), "/v1/resp_1%3F%25");
}

TEST(Sse, WritesLinesThatReadBack) {
  std::string out;
  append_sse(out, "{\"a\":1}");
  EXPECT_EQ(out, "data: {\"a\":1}\n\n");
  append_sse(out, "two\nlines\r\nthree\rfour");
  append_sse(out, "");
  append_sse(out, " leading: colon\n");
  EXPECT_THAT(SseReader().feed(out),
              ElementsAre("{\"a\":1}", "two\nlines\nthree\nfour", "", " leading: colon\n"));
  for (size_t cut = 0; cut <= out.size(); ++cut) {
    SseReader reader;
    auto events = reader.feed(std::string_view(out).substr(0, cut));
    for (auto& e : reader.feed(std::string_view(out).substr(cut))) events.push_back(e);
    EXPECT_EQ(events, SseReader().feed(out)) << cut;
  }
}

TEST(Sse, ReaderSkipsWhatIsNotData) {
  EXPECT_THAT(
      SseReader().feed(": ping\n\nevent: x\nid: 1\n\ndata\n\ndata:a\r\ndata: b\r\n\r\ndata: c"),
      ElementsAre("", "a\nb"));
}

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
  stats.scheduler.num_retracted_total = 4;
  stats.scheduler.retracted_input_total = 400;
  stats.scheduler.retracted_output_total = 40;
  stats.steps = {.num_prefill = 5,
                 .num_decode = 7,
                 .num_mixed = 2,
                 .num_overlapped = 6,
                 .prefill_compute_tokens = 900,
                 .prefill_cache_tokens = 260,
                 .decode_tokens = 70,
                 .num_retracted_lately = 1};
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

  const std::string text = metrics.render(some_engine_stats(), {.num_connections = 5});
  const std::string label = "model_name=\"tiny \\\"one\\\"\"";
  const std::string rank = "dp_rank=\"0\",engine_type=\"unified\"," + label +
                           ",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"";
  const auto of_stage = [&](const std::string& stage) {  // labels are in alphabetical order
    return std::string(rank).insert(rank.find("tp_rank"), "stage=\"" + stage + "\",");
  };
  for (const std::string& line : {
           "hocket:num_running_reqs{" + rank + "} 3\n",
           "hocket:num_queue_reqs{" + rank + "} 2\n",
           "hocket:num_grammar_queue_reqs{" + rank + "} 0\n",
           "hocket:num_pages{" + rank + "} 100\n",
           "hocket:num_free_pages{" + rank + "} 60\n",
           "hocket:num_cached_pages{" + rank + "} 30\n",
           "hocket:num_private_pages{" + rank + "} 10\n",
           "hocket:cache_hit_rate{" + rank + "} 0.25\n",
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
           "hocket:prefill_effective_tokens_total{" + rank + ",mode=\"device_hit\"} 250\n",
           "hocket:num_steps_total{" + rank + ",mode=\"prefill\"} 5\n",
           "hocket:num_steps_total{" + rank + ",mode=\"decode\"} 7\n",
           "hocket:num_steps_total{" + rank + ",mode=\"mixed\"} 2\n",
           "hocket:num_overlapped_steps_total{" + rank + "} 6\n",
           "hocket:prompt_tokens_total{" + label + "} 1000\n",
           "hocket:cached_tokens_total{" + label + ",cache_source=\"device\"} 250\n",
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
  size_t num_types = 0;
  for (size_t at = 0; (at = text.find("# TYPE hocket:num_steps_total ", at)) != text.npos; ++at)
    ++num_types;
  EXPECT_EQ(num_types, 1u);
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
  RankStats other;
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

TEST(Load, HasAnEntryForEachRank) {
  RankStats first, second;
  first.scheduler.num_running = 2;
  second.scheduler.num_waiting = 5;
  const Json load = load_json(add_up({first, second}));
  ASSERT_EQ(load.size(), 2u);
  EXPECT_EQ(load[0]["dp_rank"], 0);
  EXPECT_EQ(load[0]["num_reqs"], 2);
  EXPECT_EQ(load[1]["dp_rank"], 1);
  EXPECT_EQ(load[1]["num_reqs"], 5);
  EXPECT_EQ(load_json(EngineStats()).size(), 1u);
}

TEST(Health, IsNotReadyWithoutARank) {
  Health health(Health::Limits{});
  health.set_loaded();
  EngineStats stats;
  EXPECT_TRUE(health.ready(stats));
  stats.lost = error(ErrorCode::lost_rank, "rank 1 is gone");
  EXPECT_EQ(health.ready(stats).error().message, "rank 1 is gone");
  EXPECT_EQ(health.healthy(stats).error().code, ErrorCode::lost_rank);
}

// The message about a stuck engine names the rank, its verb and the time; ranks that wait for it
// follow.
TEST(Health, NamesWhereItIsStuck) {
  const Health health({.step_seconds_max = 10, .watchdog_seconds = 300});
  RankStats waits, stuck, idle;
  waits.busy = stuck.busy = true;
  waits.place = {.verb = Verb::forward, .layer = 3, .waits = true};
  waits.seconds_since_last_step = 310;
  stuck.place = {.verb = Verb::sample};
  stuck.seconds_since_last_step = 312.5;
  const auto late = health.watchdog(add_up({waits, stuck, idle}));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::watchdog);
  EXPECT_EQ(late.error().message,
            "the engine has work and made no step for 312.5 s: rank 1 is in sample since 312.5 s; "
            "rank 0 is in forward, layer 3, waiting for other ranks since 310.0 s");
  EXPECT_EQ(exit_status(late.error().code), 6);

  const auto alone = health.watchdog(add_up({stuck}));
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().message,
            "the engine has work and made no step for 312.5 s: it is in sample");
}

TEST(Health, FollowsTheEngine) {
  Health health({.step_seconds_max = 10, .watchdog_seconds = 300});
  EngineStats stats;
  EXPECT_EQ(health.ready().error().code, ErrorCode::loading);
  EXPECT_FALSE(health.healthy(stats));
  health.set_loaded();
  EXPECT_TRUE(health.ready());
  EXPECT_TRUE(health.healthy(stats));
  stats.busy = true;
  stats.seconds_since_last_step = 9;
  EXPECT_TRUE(health.healthy(stats));
  stats.seconds_since_last_step = 11;
  EXPECT_EQ(health.healthy(stats).error().code, ErrorCode::watchdog);
  EXPECT_TRUE(health.watchdog(stats));
  stats.seconds_since_last_step = 301;
  EXPECT_EQ(exit_status(health.watchdog(stats).error().code), 6);
  EXPECT_TRUE(Health({.watchdog_seconds = 0}).watchdog(stats));
  stats.busy = false;
  EXPECT_TRUE(health.healthy(stats));
  EXPECT_TRUE(health.watchdog(stats));
  health.set_draining();
  EXPECT_EQ(health.ready().error().code, ErrorCode::shutting_down);
}

}  // namespace
}  // namespace hocket
