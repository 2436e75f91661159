// Tests the words at start about --mla-form, and the ratio in them.
#include "engine/plan/latent_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

TEST(LatentForm, TokensThatOpenAnAnswerAreListedOrKnown) {
  const ModelConfig model = choice_of("golden/deepseek_v3").model;
  ServerSettings settings;
  const auto begins = [&](const std::string& form) {
    settings.compute.mla_form = form;
    return choose_answer_begins(settings, model);
  };
  EXPECT_EQ(*begins("answers:7,31"), (std::vector{TokenId{7}, TokenId{31}}));
  EXPECT_TRUE(begins("roles")->empty());
  for (const char* wrong : {"answers:", "answers:7,", "answers:,7", "answers:-1", "answers:x",
                            "answers:99999999", "answers:1,2,3,4,5,6,7,8,9"})
    EXPECT_FALSE(begins(wrong).has_value()) << wrong;
  const std::filesystem::path folder = ::testing::TempDir() + "/answer_begins";
  std::filesystem::create_directories(folder);
  settings.model.tokenizer_path = folder.string();
  EXPECT_TRUE(begins("auto")->empty()) << "no tokenizer.json";
  const auto write = [&](std::string_view text) {
    std::ofstream(folder / "tokenizer.json") << text;
  };
  write(R"({"version": "1.0", "added_tokens": [{"id": 3, "content": "<|user|>"},
      {"id": 4, "content": "<|assistant|>"}, {"id": 5, "content": 6}, 7,
      {"id": 99999999, "content": "[/INST]"}], "model": {"vocab": {"[/INST]": 8}}})");
  EXPECT_EQ(*begins("auto"), (std::vector{TokenId{4}}));
  for (const char* broken : {"{", "[]", R"({"added_tokens": {"a": 1}})"}) {
    write(broken);
    EXPECT_TRUE(begins("auto")->empty()) << broken;
  }
}

TEST(LatentForm, NoNoteIsNeededWhereAnswersAreKnown) {
  ServerSettings settings;
  settings.compute.mla_form = "answers:7";
  const ModelChoice choice = choice_of("golden/deepseek_v3", settings);
  EXPECT_EQ(choice.answer_begins, std::vector{TokenId{7}});
  EXPECT_EQ(choice.prompt_form, MlaForm::expanded);
  EXPECT_EQ(form_of("golden/deepseek_v3", settings).note, "");
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
