// Tests the words at start about --mla-form, and the ratio in them.
#include "engine/plan/latent_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/plan/testing.h"

namespace hocket {
namespace {

using testing::choice_of;
using testing::cost_of;
using ::testing::HasSubstr;

LatentForm form_of(const char* folder, const ServerSettings& settings = {}) {
  const ModelChoice choice = choice_of(folder, settings);
  const auto form = describe_latents(settings, choice);
  EXPECT_TRUE(form.has_value()) << describe(form.error());
  return form.value_or(LatentForm{});
}

TEST(LatentForm, AnswersThatAreNotCachedAreSaidWithThePriceOfCachingThem) {
  for (const char* folder : {"golden/deepseek_v3", "golden/glm4_moe_lite", "golden/kimi_k25",
                             "golden/mistral4", "configs/deepseek_v3"}) {
    SCOPED_TRACE(folder);
    ServerSettings settings;
    const LatentForm form = form_of(folder, settings);
    EXPECT_FALSE(form.change.has_value());
    EXPECT_THAT(form.note, HasSubstr("each turn of a conversation computes the answer before it"));
    EXPECT_THAT(form.note, HasSubstr("--mla-form absorbed keeps them"));
    EXPECT_THAT(form.note, HasSubstr("times the operations"));
    settings.scheduler.disable_radix_cache = true;
    EXPECT_EQ(form_of(folder, settings).note, "") << "nothing is cached anyway";
    settings = {};
    settings.compute.mla_form = "absorbed";
    EXPECT_EQ(form_of(folder, settings).note, "");
  }
  EXPECT_EQ(form_of("golden/qwen3_moe").note, "");
}

TEST(LatentForm, BesideDeltaNetsTheChangeHasItsPrice) {
  const LatentForm form = form_of("golden/kimi_linear");
  EXPECT_EQ(form.note, "");
  ASSERT_TRUE(form.change.has_value());
  EXPECT_EQ(form.change->to, "absorbed");
  EXPECT_THAT(form.change->why, HasSubstr("times the operations of the expanded form"));
  ServerSettings asked;
  asked.compute.mla_form = "absorbed";
  EXPECT_FALSE(form_of("golden/kimi_linear", asked).change.has_value());
}

// DeepSeek-V3: a query and a key cost 320 multiplications a head in the expanded form and 1,088 in
// the absorbed one, beside all that both forms have in common.
TEST(LatentForm, ThePriceCountsOperations) {
  const ModelChoice choice = choice_of("configs/deepseek_v3");
  const ModelCost cost = cost_of(choice);
  const double ratio = absorbed_cost_ratio(cost);
  EXPECT_NEAR(ratio, 1.27, 0.01);
  ServerSettings settings;
  settings.compute.mla_form = "absorbed";
  EXPECT_EQ(absorbed_cost_ratio(cost_of(choice_of("configs/deepseek_v3", settings))), ratio);
}

}  // namespace
}  // namespace hocket
