// Tests that requests get the same chosen experts in every schedule and on any number of ranks.
#include <gtest/gtest.h>

#include <set>

#include "engine/input_check.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

std::vector<RequestInput> asking(int count) {
  std::vector<RequestInput> inputs = traffic(count);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].sampling.return_routed_experts = i % 3 != 2;
  return inputs;
}

std::vector<Answer> routed_alone(const ServerSettings& settings, int count) {
  std::vector<Answer> answers;
  const auto engine = make_engine(settings);
  for (RequestInput& input : asking(count)) {
    std::vector<RequestInput> one;
    one.push_back(std::move(input));
    answers.push_back(std::move(run_all(*engine, std::move(one)).front()));
  }
  return answers;
}

void expect_same_routing(const std::vector<Answer>& got, const std::vector<Answer>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(got[i].tokens, expected[i].tokens);
    ASSERT_EQ(got[i].summary.routed != nullptr, expected[i].summary.routed != nullptr);
    if (got[i].summary.routed == nullptr) continue;
    EXPECT_EQ(got[i].summary.routed->ids, expected[i].summary.routed->ids);
  }
}

TEST(RoutedExperts, AreThoseOfAllTokensButTheLast) {
  const auto engine = make_engine(settings_of(kBundled, 1));
  ASSERT_NE(engine, nullptr);
  const ModelConfig& model = engine->info().model;
  std::vector<RequestInput> inputs;
  inputs.push_back(greedy_input(random_tokens(3, 75), 9));
  inputs.front().sampling.return_routed_experts = true;
  inputs.front().sampling.ignore_eos = true;
  // The second round finds the first one's pages in the cache, but still computes all rows.
  for (int again = 0; again < 2; ++again) {
    const Answer answer = std::move(run_all(*engine, inputs).front());
    ASSERT_NE(answer.summary.routed, nullptr);
    const RoutedExperts& routed = *answer.summary.routed;
    EXPECT_EQ(routed.num_layers, model.num_layers);
    EXPECT_EQ(routed.top_k, model.moe.top_k);
    ASSERT_EQ(std::ssize(routed.ids), (75 + 9 - 1) * routed.num_layers * routed.top_k);
    for (auto at = routed.ids.begin(); at != routed.ids.end(); at += routed.top_k) {
      const std::set<uint16_t> chosen(at, at + routed.top_k);
      EXPECT_EQ(std::ssize(chosen), routed.top_k);
      EXPECT_LT(*chosen.rbegin(), model.moe.num_experts);
    }
    EXPECT_EQ(answer.summary.cached_tokens, 0);
  }
}

TEST(RoutedExperts, AreTheSameInEverySchedule) {
  constexpr int kCount = 24;
  ServerSettings settings = settings_of(kBundled, 1);
  const std::vector<Answer> expected = routed_alone(settings, kCount);
  for (const char* policy : {"prefill-first", "mixed", "latency"}) {
    for (const char* overlap : {"off", "on"}) {
      SCOPED_TRACE(fmt::format("{}, {}", policy, overlap));
      settings.scheduler.prefill_policy = policy;
      settings.scheduler.overlap_schedule = overlap;
      settings.memory.max_total_tokens = 512;  // small, so that some are retracted
      settings.model.context_length = 256;
      const auto engine = make_engine(settings);
      ASSERT_NE(engine, nullptr);
      expect_same_routing(run_all(*engine, asking(kCount)), expected);
    }
  }
}

TEST(RoutedExperts, AreTheSameOnRanks) {
  constexpr int kCount = 16;
  const std::vector<Answer> expected = routed_alone(settings_of(kBundled, 1), kCount);
  for (const char* overlap : {"none", "two-batch"}) {
    SCOPED_TRACE(overlap);
    ServerSettings settings = settings_of(kBundled, 2);
    settings.parallel.overlap = overlap;
    Service service(settings);
    ASSERT_TRUE(service.works());
    std::vector<RequestId> ids;
    for (RequestInput& input : asking(kCount)) ids.push_back(*service.submit(std::move(input)));
    ASSERT_TRUE(service.read_all());
    std::vector<Answer> got;
    for (const RequestId id : ids) got.push_back(std::move(service.answer(id)));
    expect_same_routing(got, expected);
  }
}

TEST(RoutedExperts, OfNoneOrTooManyAreRefused) {
  EngineInfo info;
  info.model.vocab_size = 1000;
  info.model.num_layers = 48;
  info.model.moe.top_k = 8;
  info.context_length = 1 << 20;
  RequestInput input = greedy_input({1, 2, 3}, 100);
  input.sampling.return_routed_experts = true;
  EXPECT_NE(describe(check_input(input, info).error()).find("has no experts"), std::string::npos);
  info.model.moe.num_experts = 128;
  EXPECT_TRUE(check_input(input, info).has_value());
  input.sampling.max_new_tokens = 30'000;
  const Result<void> refused = check_input(input, info);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().param, "return_routed_experts");
}

}  // namespace
}  // namespace hocket
