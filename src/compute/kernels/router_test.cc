#include "compute/kernels/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

using cases::on_every_backend;
using cases::SameBits;
using Score = MoeConfig::Score;
using GroupScore = MoeConfig::GroupScore;
using testing::ElementsAre;

// Settings as in published models (Qwen3, DeepSeek-V2 and V3, GLM-4), and groups whose size is no
// multiple of 16.
const MoeConfig kConfigs[] = {
    {.num_experts = 128, .top_k = 8, .norm_topk_prob = true},
    {.num_experts = 60, .top_k = 4},
    {.num_experts = 8, .top_k = 8, .norm_topk_prob = true},
    {.num_experts = 512, .top_k = 10, .scaling_factor = 0.75},
    {.num_experts = 160, .top_k = 6, .num_groups = 8, .top_groups = 3, .scaling_factor = 16},
    {.num_experts = 256,
     .top_k = 8,
     .score = Score::sigmoid,
     .correction_bias = true,
     .num_groups = 8,
     .top_groups = 4,
     .group_score = GroupScore::two_best,
     .norm_topk_prob = true,
     .scaling_factor = 2.5},
    {.num_experts = 128,
     .top_k = 8,
     .score = Score::sigmoid,
     .correction_bias = true,
     .norm_topk_prob = true},
    {.num_experts = 24,
     .top_k = 5,
     .score = Score::softmax,
     .correction_bias = true,
     .num_groups = 3,
     .top_groups = 2,
     .group_score = GroupScore::two_best},
    {.num_experts = 12,
     .top_k = 3,
     .score = Score::sigmoid,
     .num_groups = 4,
     .top_groups = 1,
     .group_score = GroupScore::best,
     .norm_topk_prob = true},
};

struct Routing {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routing routed(Backend& backend, const std::vector<float>& logits, std::span<const float> bias,
               const MoeConfig& moe, std::span<const float> scales = {}) {
  const int64_t rows = std::ssize(logits) / moe.num_experts, k = moe.top_k;
  Routing r = {std::vector<int32_t>(rows * k, -1), std::vector<float>(rows * k, -1)};
  select_experts(backend, {.logits = View<const float>(logits.data(), rows, moe.num_experts),
                           .bias = bias,
                           .scales = scales,
                           .moe = moe,
                           .ids = View<int32_t>(r.ids.data(), rows, k),
                           .weights = View<float>(r.weights.data(), rows, k)});
  return r;
}

// Returns the indices of the largest numbers, ties to the lower index.
std::vector<int> largest(const std::vector<double>& x, int count) {
  std::vector<int> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int a, int b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  order.resize(count);
  return order;
}

double group_score(std::vector<double> choice, GroupScore kind) {
  std::ranges::sort(choice, std::greater());
  return kind == GroupScore::best ? choice[0] : choice[0] + choice[1];
}

// The contract for one row, in doubles.
struct Oracle {
  std::vector<int> ids;
  std::vector<double> weights;

  Oracle(std::span<const float> logits, std::span<const float> bias, const MoeConfig& moe) {
    std::vector<double> score, choice;
    double all = 0;
    for (float x : logits) all += std::exp(double{x});
    for (float x : logits)
      score.push_back(moe.score == Score::softmax ? std::exp(double{x}) / all
                                                  : 1 / (1 + std::exp(-double{x})));
    for (size_t e = 0; e < score.size(); ++e)
      // Added in fp32, where two nearly equal scores may become equal.
      choice.push_back(static_cast<float>(score[e]) + (bias.empty() ? 0 : bias[e]));
    const int size = moe.num_experts / moe.num_groups;
    std::vector<double> groups;
    for (auto g = choice.begin(); g != choice.end(); g += size)
      groups.push_back(group_score(std::vector<double>(g, g + size), moe.group_score));
    const std::vector<int> kept = largest(groups, moe.num_groups == 1 ? 1 : moe.top_groups);
    for (int e = 0; e < moe.num_experts; ++e)
      if (std::ranges::find(kept, e / size) == kept.end()) choice[e] = -HUGE_VAL;
    ids = largest(choice, moe.top_k);
    double sum = moe.score == Score::sigmoid ? 1e-20 : 0;
    for (int id : ids) sum += score[id];
    for (int id : ids)
      weights.push_back(score[id] / (moe.norm_topk_prob ? sum : 1) * moe.scaling_factor);
  }
};

void expect_oracle(const MoeConfig& moe, const std::vector<float>& logits,
                   std::span<const float> bias) {
  SameBits<int32_t> same_ids;
  SameBits<float> same_weights;
  on_every_backend([&](Backend& backend) {
    const Routing got = routed(backend, logits, bias, moe);
    ASSERT_TRUE(same_ids(got.ids)) << isa_name(backend.isa()) << " experts " << moe.num_experts;
    ASSERT_TRUE(same_weights(got.weights)) << isa_name(backend.isa());
    if (backend.isa() != Isa::ref) return;
    for (size_t r = 0; r * moe.num_experts < logits.size(); ++r) {
      const std::span row(&logits[r * moe.num_experts], moe.num_experts);
      const Oracle want(row, bias, moe);
      for (int s = 0; s < moe.top_k; ++s) {
        const size_t at = r * moe.top_k + s;
        ASSERT_EQ(got.ids[at], want.ids[s]) << "experts " << moe.num_experts << " row " << r;
        ASSERT_NEAR(got.weights[at], want.weights[s], 1e-6 * want.weights[s] + 1e-30);
      }
    }
  });
}

TEST(RouterTest, ChoosesAndWeighsAsTheContractSays) {
  std::mt19937 random(1);
  for (const MoeConfig& moe : kConfigs) {
    // Biases around zero, then around -2: no choice score is positive, and excluded experts stay
    // out.
    for (float centre : {0.0f, -2.0f}) {
      std::vector<float> bias = cases::random_row(moe.num_experts, 0.3f, random);
      for (float& b : bias) b += centre;
      const auto logits = cases::random_row(111 * moe.num_experts, 1.5f, random);
      expect_oracle(moe, logits, moe.correction_bias ? bias : std::span<const float>());
    }
  }
}

TEST(RouterTest, TiesGoToTheLowerExpertAndGroup) {
  std::mt19937 random(2);
  for (const MoeConfig& moe : kConfigs) {
    auto logits = cases::random_row(60 * moe.num_experts, 1, random);
    for (float& x : logits) x = std::round(x);
    std::fill_n(logits.begin(), moe.num_experts, 0.5f);  // all equal
    expect_oracle(moe, logits, {});
  }
}

// The numbers of docs/contracts/arithmetic.md, "experts": a published routing by DeepSeek-V3's
// rule.
TEST(RouterTest, GroupsBiasAndScalingOfKnownNumbers) {
  const std::vector<float> logits = {1.2f, -.3f, .4f, .1f, 2, -2, -.5f, .9f},
                           bias = {0, 0, .3f, .3f, -.9f, 0, .6f, -.1f};
  const MoeConfig moe = {.num_experts = 8,
                         .top_k = 3,
                         .score = Score::sigmoid,
                         .correction_bias = true,
                         .num_groups = 4,
                         .top_groups = 2,
                         .group_score = GroupScore::two_best,
                         .norm_topk_prob = true,
                         .scaling_factor = 2.5};
  on_every_backend([&](Backend& backend) {
    const Routing got = routed(backend, logits, bias, moe);
    EXPECT_THAT(got.ids, ElementsAre(6, 2, 3));
    EXPECT_THAT(got.weights,
                testing::Pointwise(testing::FloatNear(1e-6f), {.628728f, .997010f, .874262f}));
  });
}

// Softmax weights bit for bit: exp(logit - max) / sum16, divided by the sum of the chosen ones.
TEST(RouterTest, SoftmaxWeightsAreTheSumsOfTheContract) {
  std::mt19937 random(3);
  for (bool norm : {false, true}) {
    const MoeConfig moe = {.num_experts = 100, .top_k = 6, .norm_topk_prob = norm};
    const auto logits = cases::random_row(100, 2, random);
    std::vector<float> e(100);
    row_kernels(Isa::ref).exp_row(logits.data(), 100, *std::ranges::max_element(logits), e.data());
    float lanes[16] = {};
    for (int i = 0; i < 100; ++i) lanes[i % 16] = lanes[i % 16] + e[i];
    for (int width : {8, 4, 2, 1})
      for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
    on_every_backend([&](Backend& backend) {
      const Routing got = routed(backend, logits, {}, moe);
      float chosen = 0;
      for (int id : got.ids) chosen = chosen + e[id] / lanes[0];
      for (int s = 0; s < moe.top_k; ++s) {
        const float p = e[got.ids[s]] / lanes[0];
        ASSERT_EQ(got.weights[s], norm ? p / chosen : p);
      }
    });
  }
}

// Expects each row to have k different experts, whatever its numbers are.
void expect_valid_ids(const MoeConfig& moe, const std::vector<int32_t>& ids) {
  for (auto row = ids.begin(); row != ids.end(); row += moe.top_k) {
    std::vector<int32_t> sorted(row, row + moe.top_k);
    std::ranges::sort(sorted);
    ASSERT_TRUE(std::ranges::adjacent_find(sorted) == sorted.end());
    ASSERT_TRUE(sorted.front() >= 0 && sorted.back() < moe.num_experts);
  }
}

TEST(RouterTest, NotANumberSpoilsAllWeightsOfItsRowAndNoOther) {
  std::mt19937 random(4);
  for (const MoeConfig& moe : kConfigs) {
    const auto bias = cases::random_row(moe.num_experts, 0.3f, random);
    auto logits = cases::random_row(3 * moe.num_experts, 1, random);
    logits[2 * moe.num_experts - 1] = std::nanf("");  // the last logit of the middle row
    SameBits<int32_t> same;
    on_every_backend([&](Backend& backend) {
      const Routing got =
          routed(backend, logits, moe.correction_bias ? bias : std::span<const float>(), moe);
      ASSERT_TRUE(same(got.ids));
      expect_valid_ids(moe, got.ids);
      for (int i = 0; i < 3 * moe.top_k; ++i)
        ASSERT_EQ(std::isnan(got.weights[i]), i / moe.top_k == 1) << i;
    });
  }
}

TEST(RouterTest, SpecialNumbersStillChooseDifferentExperts) {
  std::mt19937 random(5);
  for (const MoeConfig& moe : kConfigs) {
    auto logits = cases::random_row(50 * moe.num_experts, 3, random);
    cases::insert_special_values(logits, random);
    auto bias = cases::random_row(moe.num_experts, 1, random);
    cases::insert_special_values(bias, random);
    bias[1] = std::nanf("");
    for (const auto& b : {std::span<const float>(), std::span<const float>(bias)}) {
      SameBits<int32_t> same;
      on_every_backend([&](Backend& backend) {
        const Routing got = routed(backend, logits, b, moe);
        ASSERT_TRUE(same(got.ids)) << isa_name(backend.isa());
        expect_valid_ids(moe, got.ids);
      });
    }
  }
}

TEST(RouterTest, ScalesOfExpertsMultiplyTheWeightsAndChooseNone) {
  const MoeConfig moe = {.num_experts = 12, .top_k = 4, .norm_topk_prob = true};
  std::mt19937 random(6);
  const auto logits = cases::random_row(3 * moe.num_experts, 1, random);
  const auto scales = cases::random_row(moe.num_experts, 1, random);
  on_every_backend([&](Backend& backend) {
    const Routing plain = routed(backend, logits, {}, moe);
    const Routing got = routed(backend, logits, {}, moe, scales);
    EXPECT_EQ(got.ids, plain.ids);
    for (size_t i = 0; i < got.ids.size(); ++i)
      EXPECT_EQ(got.weights[i], plain.weights[i] * scales[got.ids[i]]);
  });
}

TEST(RouterTest, SigmoidScoresOfZeroGiveWeightsOfZero) {
  const MoeConfig moe = {
      .num_experts = 20, .top_k = 3, .score = Score::sigmoid, .norm_topk_prob = true};
  on_every_backend([&](Backend& backend) {
    const Routing got = routed(backend, std::vector<float>(20, -500), {}, moe);
    EXPECT_THAT(got.ids, ElementsAre(0, 1, 2));
    EXPECT_THAT(got.weights, ElementsAre(0, 0, 0));
  });
}

}  // namespace
}  // namespace hocket
