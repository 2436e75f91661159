// Helpers for tests that compare bits: kinds of models, and answers compared by equality.
#pragma once

#include <bit>
#include <functional>
#include <random>

#include "engine/tests/testing.h"

namespace hocket::testing {

// A kind of model, or of arithmetic in it.
struct Form {
  const char* name;
  std::filesystem::path model;
  const char* quantization = "none";
  const char* kv_cache_dtype = "auto";
  const char* mla_form = "auto";
};
inline const std::filesystem::path kBundledFolder = "models/hocket-tiny-qwen3-moe";
inline const std::filesystem::path kGolden = "tests/golden";
inline const Form kBundled = {"bundled", kBundledFolder};
inline const Form kMoe = {"moe", kGolden / "qwen3_moe"};
inline const Form kDense = {"dense", kGolden / "qwen3"};
inline const Form kMla = {"mla", kGolden / "deepseek_v3_bf16"};    // groups of experts
inline const Form kMaxMini = {"minimax", kGolden / "minimax_m2"};  // norm over all heads
inline const Form kMistral4 = {"mistral4", kGolden / "mistral4"};  // queries scaled by position
inline const Form kGlmLite = {"glm4_lite", kGolden / "glm4_moe_lite"};  // other sizes of latents
inline const Form kKimiK25 = {"kimi_k25", kGolden / "kimi_k25"};        // nested
inline const Form kErnie = {"ernie", kGolden / "ernie4_5_moe"};         // softmax with a bias
inline const Form kQwen3Vl = {"qwen3_vl", kGolden / "qwen3_vl_moe"};    // stacked experts
inline const Form kDelta = {"delta", kGolden / "qwen3_5_moe"};  // delta nets, gated attention
inline const Form kDeltaDense = {"delta_dense", kGolden / "qwen3_5"};
inline const Form kDeltaInt8 = {"delta_int8", kGolden / "qwen3_next", "int8"};
inline const Form kDeltaInt4 = {"delta_int4", kGolden / "qwen3_5_moe", "int4"};
inline const Form kDeltaInt8Kv = {"delta_int8_kv", kGolden / "qwen3_next", "none", "int8"};
inline const Form kMimo = {"mimo", kGolden / "mimo_v2_flash"};  // windows, sinks, two shapes
inline const Form kMimoInt8Kv = {"mimo_int8_kv", kGolden / "mimo_v2_flash", "none", "int8"};
inline const Form kGptOss = {"gpt_oss", kGolden / "gpt_oss"};  // limited activations
inline const Form kGptOssMxfp4 = {"gpt_oss_mxfp4", kGolden / "gpt_oss_mxfp4"};  // as published
inline const Form kLlama4 = {"llama4", kGolden / "llama4"};     // chunks, weighted inputs
inline const Form kStep3p7 = {"step3p7", kGolden / "step3p7"};  // gates of heads
inline const Form kKimiLinear = {"kimi_linear", kGolden / "kimi_linear"};  // decays of channels
inline const Form kKimiLinearInt8 = {"kimi_linear_int8", kGolden / "kimi_linear", "int8", "int8"};
inline const Form kGemma4 = {"gemma4", kGolden / "gemma4_moe"};  // norms of results, scaled rows
inline const Form kGemma4Int8Kv = {"gemma4_int8_kv", kGolden / "gemma4_moe", "none", "int8"};
inline const Form kFp8 = {"fp8", kGolden / "deepseek_v3_fp8"};
inline const Form kInt8 = {"int8", kBundledFolder, "int8"};
inline const Form kInt4 = {"int4", kBundledFolder, "int4"};
inline const Form kAwq = {"awq", kGolden / "quantized/awq"};  // groups of 32
inline const Form kMxfp4 = {"mxfp4", kGolden / "qwen3_moe_mxfp4"};
inline const Form kMxfp8 = {"mxfp8", kGolden / "quantized/mxfp8"};
inline const Form kNvfp4 = {"nvfp4", kGolden / "qwen3_moe_nvfp4"};
inline const Form kInt8Kv = {"int8_kv", kBundledFolder, "none", "int8"};
inline const Form kMlaInt8Kv = {"mla_int8_kv", kGolden / "deepseek_v3_bf16", "none", "int8"};
// Prompts with answers in them.
inline const Form kMlaAnswers = {"mla_answers", kGolden / "deepseek_v3_bf16", "none", "auto",
                                 "answers:7,8,9,10,11,12,13,14"};
inline const Form kForms[] = {kBundled,  kMoe,        kDense,          kMla,         kMaxMini,
                              kMistral4, kGlmLite,    kKimiK25,        kErnie,       kQwen3Vl,
                              kDelta,    kDeltaDense, kDeltaInt8,      kDeltaInt4,   kDeltaInt8Kv,
                              kMimo,     kMimoInt8Kv, kGptOss,         kGptOssMxfp4, kLlama4,
                              kStep3p7,  kKimiLinear, kKimiLinearInt8, kGemma4,      kGemma4Int8Kv,
                              kFp8,      kInt8,       kInt4,           kAwq,         kMxfp4,
                              kMxfp8,    kNvfp4,      kInt8Kv,         kMlaInt8Kv,   kMlaAnswers};
inline constexpr int kVocabulary = 512;  // the smallest of these models
inline constexpr int kImageTokens = 8;   // the last tokens may stand for images, which are refused

inline std::vector<int> random_tokens(int seed, int count) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<int> tokens(count);
  for (int& token : tokens) {
    token = static_cast<int>(random() % kVocabulary);
    if (token >= kVocabulary - kImageTokens) token -= kImageTokens;
  }
  return tokens;
}

inline uint32_t bits(float x) {
  return std::bit_cast<uint32_t>(x);
}

inline void expect_same(const PositionLogprobs& got, const PositionLogprobs& want) {
  EXPECT_EQ(bits(got.logprob), bits(want.logprob));
  ASSERT_EQ(got.top.size(), want.top.size());
  for (size_t i = 0; i < got.top.size(); ++i) {
    EXPECT_EQ(value(got.top[i].token), value(want.top[i].token));
    EXPECT_EQ(bits(got.top[i].logprob), bits(want.top[i].logprob));
  }
}

inline void expect_same(const Answer& got, const Answer& want) {
  ASSERT_EQ(got.tokens, want.tokens);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < want.top.size(); ++i)
    expect_same(PositionLogprobs{got.logprobs[i], got.top[i]},
                PositionLogprobs{want.logprobs[i], want.top[i]});
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
  for (size_t i = 1; i < want.prompt_logprobs.size(); ++i)
    expect_same(got.prompt_logprobs[i], want.prompt_logprobs[i]);
}

inline void expect_same(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(expect_same(got[i], want[i]));
  }
}

inline ServerSettings base_settings(const Form& form) {
  ServerSettings settings = settings_for(form.model);
  settings.model.quantization = form.quantization;
  settings.memory.kv_cache_dtype = form.kv_cache_dtype;
  settings.compute.mla_form = form.mla_form;
  settings.model.context_length = 256;  // the smallest model's
  return settings;
}

// A way to set the engine, and the counters that must show that it happened.
struct ScheduleVariant {
  const char* name;
  std::function<void(ServerSettings&)> change;
  bool overlaps = false, retracts = false;
};

// Runs the requests one after the other, without a prefix cache.
inline std::vector<Answer> alone(ServerSettings settings, std::vector<RequestInput> inputs) {
  settings.scheduler.disable_radix_cache = true;
  const auto engine = make_engine(settings);
  std::vector<Answer> answers;
  for (RequestInput& input : inputs) {
    std::vector<RequestInput> one;
    one.push_back(std::move(input));
    answers.push_back(std::move(run_all(*engine, std::move(one))[0]));
  }
  return answers;
}

}  // namespace hocket::testing
