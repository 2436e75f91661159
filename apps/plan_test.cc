// Tests that `hocket plan` forecasts the sizes that the engine then has.
#include <gtest/gtest.h>

#include "base/machine.h"
#include "base/source_dir_testing.h"
#include "engine/forecast/forecast.h"
#include "engine/plan/testing.h"
#include "engine/runner/runner.h"

namespace hocket {
namespace {

TEST(Plan, ForecastsWhatTheEngineUses) {
  struct Case {
    const char *model, *quantization, *kv_cache_dtype;
  };
  for (const Case& c : {Case{"golden/qwen3", "none", "auto"},
                        {"golden/qwen3_moe", "int4", "int8"},
                        {"golden/deepseek_v3", "none", "int8"},
                        {"golden/deepseek_v3", "int8", "auto"},
                        {"golden/deepseek_v3_fp8", "none", "auto"},
                        {"golden/mimo_v2_flash", "none", "int8"},
                        {"golden/qwen3_5_moe", "none", "auto"},
                        {"golden/kimi_linear", "int8", "int8"},
                        {"golden/gpt_oss", "none", "auto"},
                        {"golden/llama4", "none", "auto"},
                        {"golden/gemma4_moe", "none", "int8"},
                        {"golden/step3p7", "int8", "auto"},
                        {"golden/qwen3_moe_mxfp4", "none", "auto"},
                        {"golden/qwen3_moe_nvfp4", "none", "auto"}}) {
    ForecastInput q{.total_bytes = testing::kGb,
                    .available_bytes = testing::kGb,
                    .speed = {50e9, 500e9, 2000e9}};
    q.settings.model.model_path = (source_dir() / "tests" / c.model).string();
    q.settings.memory.max_total_tokens = 4096;
    q.settings.model.quantization = c.quantization;
    q.settings.memory.kv_cache_dtype = c.kv_cache_dtype;
    q.settings.compute.num_threads = 2;
    q.num_workers = 2;
    q.isa = choose_isa().value();
    const auto runner =
        Runner::create({.settings = q.settings, .progress = {}, .tokenizer_eos = {}});
    ASSERT_TRUE(runner.has_value()) << c.model << describe(runner.error());
    const Result<Forecast> forecasted = forecast(q);
    ASSERT_TRUE(forecasted.has_value()) << c.model << describe(forecasted.error());
    const Forecast& f = *forecasted;
    ASSERT_TRUE(f.fits()) << describe(*f.refusal);
    EXPECT_EQ(f.memory.weight_bytes, (*runner)->info().weight_bytes) << c.model;
    EXPECT_EQ(f.memory.work_bytes, (*runner)->info().work_bytes) << c.model;
    EXPECT_EQ(f.memory.kv_bytes, (*runner)->info().kv_bytes) << c.model;
    EXPECT_EQ(f.memory.state_bytes, (*runner)->info().state_bytes) << c.model;
    EXPECT_EQ(f.memory.num_states, (*runner)->info().num_states) << c.model;
    EXPECT_EQ(f.memory.context_length, (*runner)->info().context_length) << c.model;
  }
}

}  // namespace
}  // namespace hocket
