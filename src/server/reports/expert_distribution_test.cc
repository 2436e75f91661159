// The answers of the expert distribution paths, without a model.
#include "server/reports/expert_distribution.h"

#include <gmock/gmock.h>

#include "server/reports/metrics.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

class ExpertDistribution : public ::testing::Test {
 protected:
  static Json json_of(const Result<Json>& answer) {
    EXPECT_TRUE(answer.has_value()) << answer.error().message;
    return answer.value_or(Json());
  }
  std::string refused(std::string_view body) {
    const auto answer = start_expert_record(&stats_, body);
    if (answer) return "started";
    EXPECT_EQ(answer.error().code, ErrorCode::invalid_request);
    return answer.error().param + ": " + answer.error().message;
  }
  void play(std::vector<uint32_t> counts, int num_tokens) {
    ExpertPass pass{.num_tokens = num_tokens, .counts = std::vector<uint32_t>(stats_.num_counts())};
    ASSERT_EQ(stats_.open(pass).rows, 3);
    pass.counts = std::move(counts);
    stats_.note(pass);
  }

  // Layer 0 has no experts; in the other layers, ranks 0 and 1 have two each.
  ExpertStats stats_{3, *Placement::contiguous(4, 2), 0};
};

TEST_F(ExpertDistribution, ARecord) {
  EXPECT_EQ(json_of(start_expert_record(&stats_, "")), Json::parse(R"({"recording":true})"));
  play({0, 0, 0, 0, 1, 2, 3, 2, 0, 0, 4, 4}, 4);
  EXPECT_EQ(json_of(stop_expert_record(&stats_)), Json::parse(R"({"recording":false})"));
  EXPECT_EQ(json_of(dump_expert_record(&stats_)), Json::parse(R"({
    "rank": 0, "mode": "stat", "recording": false, "num_steps": 1, "num_tokens": 4,
    "expert_rank": [0, 0, 1, 1], "place_rank": [0, 0, 1, 1],
    "place_expert": [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]],
    "average_utilization_rate_over_window": 0.65,
    "layer_balancedness": {"ranks": [null, 0.8, 0.5], "experts": [null, 0.6666666666666666, 0.5]},
    "logical_count": [[0, 0, 0, 0], [1, 2, 3, 2], [0, 0, 4, 4]]})"));
}

TEST_F(ExpertDistribution, ALookLeavesTheRecordAsItIs) {
  EXPECT_EQ(json_of(look_at_expert_record(&stats_, std::nullopt)),
            Json::parse(R"({"recording": false, "record": null, "replicas": 0, "moves": null})"));
  ExpertMoveStats moves;
  moves.moves_total = 7;
  EXPECT_EQ(json_of(look_at_expert_record(&stats_, moves))["moves"]["experts"], 7);
  json_of(start_expert_record(&stats_, R"({"mode": "per_pass"})"));
  play({0, 0, 0, 0, 1, 2, 3, 2, 0, 0, 4, 4}, 4);
  const Json first = json_of(look_at_expert_record(&stats_, std::nullopt));
  EXPECT_EQ(first["recording"], true);
  EXPECT_EQ(first["record"]["num_tokens"], 4);
  EXPECT_EQ(first["record"]["logical_count"][1], Json::parse("[1, 2, 3, 2]"));
  EXPECT_FALSE(first["record"].contains("records"));
  EXPECT_EQ(json_of(look_at_expert_record(&stats_, std::nullopt)), first);
  EXPECT_EQ(json_of(dump_expert_record(&stats_))["num_tokens"], 4);
}

// The picture of compute/moe/placement.h.
TEST_F(ExpertDistribution, EachPlaceHasItsRank) {
  ExpertStats stats(1, Placement::of_places(std::array{0, 1, 2, 3, 0, 3, 4, 5}, 6, 2), 0);
  json_of(start_expert_record(&stats, ""));
  const Json look = json_of(look_at_expert_record(&stats, std::nullopt));
  EXPECT_EQ(look["replicas"], 2);
  EXPECT_EQ(look["record"]["place_expert"], Json::parse("[[0, 1, 2, 3, 0, 3, 4, 5]]"));
  EXPECT_EQ(look["record"]["place_rank"], Json::parse("[0, 0, 0, 0, 1, 1, 1, 1]"));
  EXPECT_EQ(look["record"]["expert_rank"], Json::parse("[0, 0, 0, 0, 1, 1]"));
}

TEST_F(ExpertDistribution, ARecordOfPasses) {
  json_of(start_expert_record(&stats_, R"({"mode": "per_pass", "buffer_size": 1})"));
  play({0, 0, 0, 0, 1, 2, 3, 2, 0, 0, 4, 4}, 4);
  play({0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0}, 1);
  const Json dump = json_of(dump_expert_record(&stats_));
  EXPECT_EQ(dump["recording"], true);
  EXPECT_EQ(dump["num_steps"], 2);
  EXPECT_EQ(dump["num_tokens"], 5);
  EXPECT_EQ(dump["records"], Json::parse(R"([{"forward_pass_id": 1, "rank": 0, "num_tokens": 1,
      "logical_count": [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0]]}])"));
}

TEST_F(ExpertDistribution, NothingChosenIsNoBalance) {
  json_of(start_expert_record(&stats_, "{}"));
  const Json dump = json_of(dump_expert_record(&stats_));
  EXPECT_TRUE(dump["average_utilization_rate_over_window"].is_null());
  EXPECT_EQ(dump["layer_balancedness"]["ranks"], Json::parse("[null, null, null]"));
}

TEST_F(ExpertDistribution, ClearErrors) {
  EXPECT_EQ(refused(R"({"mode": "per_token"})"),
            "mode: mode is 'per_token', must be stat or per_pass");
  EXPECT_THAT(refused(R"({"mode": 1})"), HasSubstr("mode must be a string"));
  EXPECT_THAT(refused(R"({"buffer_size": 10})"), HasSubstr("stat keeps none"));
  EXPECT_THAT(refused(R"({"mode": "per_pass", "buffer_size": 0})"), HasSubstr("buffer_size"));
  EXPECT_THAT(refused(R"({"mode": "per_pass", "buffer_size": 400000})"),
              HasSubstr("must be 1 to 349525"));
  EXPECT_THAT(refused(R"({"mod": "stat"})"), HasSubstr("mod"));
  EXPECT_THAT(refused("stat"), HasSubstr("JSON"));
  EXPECT_FALSE(stats_.recording());
  EXPECT_THAT(stop_expert_record(&stats_).error().message, HasSubstr("nothing is being recorded"));
  EXPECT_THAT(dump_expert_record(&stats_).error().message, HasSubstr("there is no record"));
}

TEST_F(ExpertDistribution, OfADenseModelIsNone) {
  for (const Result<Json>& answer :
       {start_expert_record(nullptr, ""), stop_expert_record(nullptr), dump_expert_record(nullptr)})
    EXPECT_EQ(answer.error().message, "this model has no experts");
}

TEST_F(ExpertDistribution, Metrics) {
  EngineInfo info;
  info.served_model_name = "tiny";
  EngineStats engine;
  EXPECT_EQ(Metrics(info).render(engine, {}).find("hocket:expert_balancedness"), std::string::npos);
  json_of(start_expert_record(&stats_, ""));
  play({0, 0, 0, 0, 1, 2, 3, 2, 0, 0, 4, 4}, 4);
  engine.experts = stats_.balance();
  const std::string text = Metrics(info).render(engine, {});
  EXPECT_THAT(text, HasSubstr("hocket:expert_balancedness{model_name=\"tiny\"} 0.65\n"));
  EXPECT_THAT(text,
              HasSubstr("hocket:expert_tokens_total{model_name=\"tiny\",expert_rank=\"0\"} 3\n"));
  EXPECT_THAT(text,
              HasSubstr("hocket:expert_tokens_total{model_name=\"tiny\",expert_rank=\"1\"} 13\n"));
}

}  // namespace
}  // namespace hocket
