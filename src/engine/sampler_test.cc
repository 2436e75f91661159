// Tests the sampler's rules one by one; golden_test.cc compares whole distributions.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "core/request_bounds.h"
#include "engine/top_k_top_p.h"

namespace hocket {
namespace {

constexpr int kNumLogits = 300;

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 2);
    for (float& l : logits_) l = normal(random);
  }

  SampledToken sample(const SamplingParams& params, const std::vector<TokenId>& generated = {},
                      const std::vector<TokenId>& end_ids = {}) {
    return sample(
        {.params = &params, .prompt = prompt_, .generated = generated, .end_ids = end_ids});
  }
  SampledToken sample(const SampleRow& row) {
    SampledToken token;
    std::unique_ptr<PositionLogprobs> logprobs;
    sampler_.sample(backend_, View<const float>(logits_.data(), 1, kNumLogits), std::span(&row, 1),
                    std::span(&token, 1), std::span(&logprobs, 1));
    return token;
  }
  std::vector<double> processed(const SamplingParams& params,
                                const std::vector<TokenId>& generated) {
    const SampleRow row{
        .params = &params, .prompt = prompt_, .generated = generated, .end_ids = {}};
    return sampler_.distribution(backend_, logits_, row).processed;
  }

  WorkerPool workers_{{.num_workers = 2}};
  Backend backend_ = *Backend::create(detect_isa(), workers_, 1 << 20);
  Sampler sampler_{kNumLogits, 64};
  std::vector<float> logits_ = std::vector<float>(kNumLogits);
  std::vector<TokenId> prompt_ = {TokenId{1}, TokenId{2}, TokenId{2}};
};

TEST(UniformAt, IsUniformOverSeedsAndOverPositions) {
  constexpr int kCount = 200'000, kBuckets = 100;
  for (const bool over_seeds : {false, true}) {
    std::vector<int> counts(kBuckets);
    double sum = 0, neighbours = 0, last = 0.5;
    for (int i = 0; i < kCount; ++i) {
      const double u = over_seeds ? uniform_at(i, 17) : uniform_at(42, i);
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      ++counts[static_cast<size_t>(u * kBuckets)];
      sum += u;
      neighbours += (u - 0.5) * (last - 0.5);
      last = u;
    }
    double chi2 = 0;
    const double expected = static_cast<double>(kCount) / kBuckets;
    for (const int n : counts) chi2 += (n - expected) * (n - expected) / expected;
    EXPECT_LT(chi2, 160);  // 99 degrees of freedom: 1 in 10,000
    EXPECT_NEAR(sum / kCount, 0.5, 0.003);
    EXPECT_NEAR(neighbours / kCount, 0, 0.001);
  }
}

TEST(UniformAt, IsTheSameEverywhere) {
  EXPECT_EQ(uniform_at(7, 3), uniform_at(7, 3));
  EXPECT_NE(uniform_at(7, 3), uniform_at(3, 7));
  EXPECT_NE(uniform_at(0, 0), uniform_at(0, 1));
}

TEST_F(SamplerTest, DrawsFollowTheDistribution) {
  SamplingParams params{.temperature = 0.8, .top_p = 0.95, .top_k = 30};
  const SampleRow row{.params = &params, .prompt = prompt_, .generated = {}, .end_ids = {}};
  const auto wanted = sampler_.distribution(backend_, logits_, row).probabilities;
  constexpr int kDraws = 20'000;
  std::vector<int> counts(kNumLogits);
  for (int i = 0; i < kDraws; ++i) {
    params.seed = i;
    ++counts[value(sample(params).token)];
  }
  for (int t = 0; t < kNumLogits; ++t) {
    const double p = wanted[t];
    EXPECT_LE(std::abs(counts[t] - kDraws * p), 5 * std::sqrt(kDraws * p * (1 - p))) << t;
  }
}

// Overlapped steps sample before the step before has been committed, so the newest token stands
// apart.
TEST_F(SamplerTest, TheNewestTokenMayStandApart) {
  const std::vector<TokenId> ends = {TokenId{4}, TokenId{7}};
  // The newest token occurs in the prompt, in the answer, in neither, or is the only one.
  for (const std::vector<int>& ids :
       {std::vector{5, 6, 2}, std::vector{5, 6, 5}, std::vector{5, 6, 9}, std::vector{8}}) {
    std::vector<TokenId> generated;
    for (const int id : ids) generated.push_back(TokenId{id});
    SamplingParams params{.temperature = 1.5, .frequency_penalty = 0.7, .presence_penalty = 0.3};
    params.repetition_penalty = 1.3;
    params.min_new_tokens = static_cast<int>(ids.size());
    SampleRow whole{.params = &params, .prompt = prompt_, .generated = generated, .end_ids = ends};
    SampleRow apart = whole;
    apart.generated = whole.generated.first(ids.size() - 1);
    apart.newer = whole.generated.last(1);
    EXPECT_EQ(sampler_.distribution(backend_, logits_, apart).processed,
              sampler_.distribution(backend_, logits_, whole).processed);
    int num_differing = 0;
    for (int seed = 0; seed < 50; ++seed) {
      params.seed = static_cast<uint64_t>(seed);
      EXPECT_EQ(value(sample(apart).token), value(sample(whole).token));
      SampleRow without = apart;
      without.newer = {};
      num_differing += value(sample(without).token) != value(sample(whole).token);
    }
    EXPECT_GT(num_differing, 10);
  }
}

// A row behind a draft draws what it would draw if the draft were a token; behind a draft that does
// not hold, nothing is drawn.
TEST_F(SamplerTest, DraftsAreFollowedUpToTheFirstThatFails) {
  constexpr size_t kDrafts = 6;
  const std::vector<TokenId> ends = {TokenId{4}, TokenId{7}};
  SamplingParams params{.temperature = 1.5, .frequency_penalty = 0.7, .presence_penalty = 0.3};
  params.repetition_penalty = 1.3;
  params.min_new_tokens = 3;
  params.num_top_logprobs = 2;
  std::vector<TokenId> answer;
  while (answer.size() < 2 + kDrafts + 1) {
    params.seed = 11;
    answer.push_back(sample(params, answer, ends).token);
  }
  const auto known = std::span<const TokenId>(answer).first(2);
  for (size_t wrong = 0; wrong <= kDrafts; ++wrong) {
    std::vector<TokenId> drafts(answer.begin() + 2, answer.end() - 1);
    if (wrong < kDrafts) drafts[wrong] = TokenId{(value(drafts[wrong]) + 1) % kNumLogits};
    std::vector<SampleRow> rows;
    for (size_t i = 0; i <= kDrafts; ++i)
      rows.push_back({.params = &params,
                      .prompt = prompt_,
                      .generated = known,
                      .newer = std::span<const TokenId>(drafts).first(i),
                      .draft = i < kDrafts ? drafts[i] : TokenId{-1},
                      .end_ids = ends});
    rows.push_back({.params = &params, .prompt = prompt_, .generated = known, .end_ids = ends});
    std::vector<SampledToken> tokens(rows.size());
    std::vector<std::unique_ptr<PositionLogprobs>> logprobs(rows.size());
    sampler_.sample(backend_, View<const float>(logits_.data(), 1, kNumLogits), rows, tokens,
                    logprobs);
    for (size_t i = 0; i <= kDrafts; ++i) {
      const bool counts = i <= wrong;
      EXPECT_EQ(value(tokens[i].token), counts ? value(answer[2 + i]) : -1) << wrong << ' ' << i;
      EXPECT_EQ(logprobs[i] != nullptr, counts) << wrong << ' ' << i;
    }
    EXPECT_EQ(tokens.back().token, answer[2]);  // the next request's row
  }
}

TEST_F(SamplerTest, ADrawDependsOnItsRowAlone) {
  constexpr int kRows = 48;
  std::vector<SamplingParams> params(kRows);
  std::vector<SampleRow> rows(kRows);
  for (int i = 0; i < kRows; ++i) {
    params[i] = {.temperature = 0.5 + 0.1 * (i % 7), .top_p = i % 3 ? 1.0 : 0.8};
    params[i].seed = i;
    params[i].frequency_penalty = i % 2;
    rows[i] = {.params = &params[i], .prompt = prompt_, .generated = prompt_, .end_ids = {}};
  }
  std::vector<SampledToken> tokens(kRows);
  std::vector<std::unique_ptr<PositionLogprobs>> logprobs(kRows);
  sampler_.sample(backend_, View<const float>(logits_.data(), 1, kNumLogits), rows, tokens,
                  logprobs);
  for (int i = 0; i < kRows; ++i)
    EXPECT_EQ(value(tokens[i].token), value(sample(params[i], prompt_).token)) << i;
}

TEST_F(SamplerTest, PenaltiesCountEachTokenOnceAndInOrder) {
  logits_[1] = 2, logits_[2] = -2, logits_[3] = 4;
  const SamplingParams params{
      .frequency_penalty = 0.5, .presence_penalty = 0.25, .repetition_penalty = 2};
  // Token 3 was generated twice; 1 and 2 are in the prompt only.
  const auto x = processed(params, {TokenId{3}, TokenId{3}});
  EXPECT_EQ(x[1], 1);
  EXPECT_EQ(x[2], -4);
  EXPECT_EQ(x[3], 4.0 / 2 - 2 * 0.5 - 0.25);
  EXPECT_EQ(x[4], logits_[4]);
  // A second call gives the same, so the counters are zero again.
  EXPECT_EQ(processed(params, {TokenId{3}, TokenId{3}}), x);
}

TEST_F(SamplerTest, MasksAllowBiasAndHideEnds) {
  SamplingParams params{.temperature = 0};
  params.allowed_ids = {TokenId{5}, TokenId{9}};
  logits_[5] = 1, logits_[9] = 2;
  EXPECT_EQ(value(sample(params).token), 9);
  params.logit_bias = {{TokenId{5}, 1.5f}};
  EXPECT_EQ(value(sample(params).token), 5);
  params.min_new_tokens = 2;
  const std::vector<TokenId> ends = {TokenId{5}};
  EXPECT_EQ(value(sample(params, {TokenId{1}}, ends).token), 9);
  EXPECT_EQ(value(sample(params, {TokenId{1}, TokenId{1}}, ends).token), 5);
  params.stop_ids = {TokenId{9}};  // nothing is left to choose from
  EXPECT_TRUE(sample(params, {TokenId{1}}, ends).failed);
}

TEST_F(SamplerTest, LogitsThatAreNotFiniteFail) {
  const SamplingParams params{.temperature = 0};
  logits_[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(sample(params).failed);
  logits_[7] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(sample(params).failed);
  logits_[7] = 0;
  EXPECT_FALSE(sample(params).failed);
}

// A row whose rules overflow fails alone, greedy or not.
TEST_F(SamplerTest, LogitsThatItsRulesMakeInfiniteFail) {
  logits_[2] = 3;
  for (const double temperature : {0.0, 1.0, 0.7}) {
    SamplingParams params{.temperature = temperature, .top_p = 0.9, .top_k = 50};
    params.logit_bias = {{TokenId{2}, 100.0f}};
    params.repetition_penalty = 1e-45;
    const SampledToken token = sample(params);
    EXPECT_TRUE(token.failed) << temperature;
    EXPECT_EQ(token.grammar, GrammarVerdict::may_continue);
  }
}

// Tests every parameter at both ends of its range, with all filters, on small and large logits.
TEST_F(SamplerTest, EveryParameterThatIsTakenGivesAToken) {
  const auto ends = [](const NumberRange& range) {
    return std::array{range.low_excluded ? range.low + 1e-9 : range.low, range.high};
  };
  for (const float scale : {1.0f, 1e30f, 0.0f}) {
    for (float& l : logits_) l *= scale;
    for (uint32_t choice = 0; choice < 1u << kSamplingNumbers.size(); ++choice) {
      SamplingParams params{.top_k = 3};
      for (size_t i = 0; i < kSamplingNumbers.size(); ++i)
        params.*kSamplingNumbers[i].value = ends(kSamplingNumbers[i].range)[choice >> i & 1];
      params.logit_bias = {{TokenId{1}, -100.0f}, {TokenId{2}, 100.0f}};
      EXPECT_FALSE(sample(params, {TokenId{3}, TokenId{3}}).failed) << scale << " " << choice;
    }
  }
}

TEST_F(SamplerTest, LogprobsAreOfTheUntouchedLogitsBestFirst) {
  SamplingParams params{.temperature = 0.5, .num_top_logprobs = 20};
  params.logit_bias = {{TokenId{0}, 50.0f}};
  const SampleRow row{.params = &params, .prompt = prompt_, .generated = {}, .end_ids = {}};
  SampledToken token;
  std::unique_ptr<PositionLogprobs> got;
  sampler_.sample(backend_, View<const float>(logits_.data(), 1, kNumLogits), std::span(&row, 1),
                  std::span(&token, 1), std::span(&got, 1));
  ASSERT_EQ(value(token.token), 0);
  double sum = 0;
  for (const float l : logits_) sum += std::exp(static_cast<double>(l));
  EXPECT_NEAR(got->logprob, logits_[0] - std::log(sum), 1e-5);
  ASSERT_EQ(got->top.size(), 20);
  EXPECT_EQ(logits_[value(got->top[0].token)], *std::ranges::max_element(logits_));
  for (int i = 1; i < 20; ++i) EXPECT_GE(got->top[i - 1].logprob, got->top[i].logprob);
}

// NaN and infinity fall into a bucket, too, so nothing is written out of bounds.
TEST(CandidatesTest, CountsAnyNumber) {
  std::vector<float> p = {std::numeric_limits<float>::quiet_NaN(), -1.0f, 2.0f,
                          std::numeric_limits<float>::infinity(), -0.0f};
  p.push_back(-std::numeric_limits<float>::quiet_NaN());
  TopKTopPFilter candidates(static_cast<int>(p.size()));
  candidates.count(p);
  candidates.keep_mass(0.5, p);
  EXPECT_EQ(p.size(), 6u);
}

// Compares with sorting, for every k and many p, including cuts at the borders of buckets.
TEST(CandidatesTest, EveryCutIsExact) {
  std::mt19937 random(9);
  std::vector<float> x(200), all(200);
  TopKTopPFilter candidates(200);
  for (int round = 0; round < 3; ++round) {
    std::normal_distribution<float> normal(0, round == 0 ? 0.05f : 2.0f * round);
    for (float& l : x) l = std::min(normal(random), 0.0f);  // makes several largest
    x[0] = 0;
    for (size_t i = 0; i < x.size(); ++i) all[i] = std::exp(x[i]);
    std::vector<float> sorted = x;
    std::ranges::sort(sorted, std::greater<>());
    for (int k = 1; k < 200; ++k) {
      std::vector<float> p = all;
      candidates.count(p);
      candidates.keep_largest(x, k, p);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(p[i] > 0, x[i] >= sorted[k - 1]) << k;
    }
    for (double top_p = 0.01; top_p < 1; top_p += 0.01) {
      std::vector<float> p = all;
      candidates.count(p);
      candidates.keep_mass(top_p, p);
      double whole = 0, kept = 0, smallest = 1;
      for (const float q : all) whole += q;
      for (const float q : p)
        if (q > 0) kept += q, smallest = std::min<double>(smallest, q);
      EXPECT_GE(kept / whole, top_p - 1e-6);               // enough tokens stay
      EXPECT_LT((kept - smallest) / whole, top_p + 1e-6);  // and not one too many
      for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(p[i] > 0 || all[i] <= smallest);
    }
  }
}

}  // namespace
}  // namespace hocket
