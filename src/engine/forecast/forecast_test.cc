// Tests the forecasts of `hocket plan`: sizes that fit do fit, and advice helps.
#include "engine/forecast/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "engine/plan/testing.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;
using testing::kGb;

ForecastInput input(const char* model, int64_t memory) {
  ForecastInput q{.total_bytes = memory,
                  .available_bytes = memory,
                  .num_workers = 8,
                  .speed = {50e9, 500e9, 2000e9}};
  q.settings.model.model_path = (source_dir() / "tests" / model).string();
  return q;
}

Forecast must(const ForecastInput& q) {
  auto f = forecast(q);
  EXPECT_TRUE(f.has_value()) << describe(f.error());
  return *std::move(f);
}

// Applies the flags "--a x --b y" of an advice.
void apply(const std::string& flags, ServerSettings& s) {
  std::istringstream in(flags);
  for (std::string flag, value; in >> flag >> value;) {
    if (flag == "--quantization")
      s.model.quantization = value;
    else if (flag == "--kv-cache-dtype")
      s.memory.kv_cache_dtype = value;
    else if (flag == "--context-length")
      s.model.context_length = std::stoi(value);
    else if (flag == "--chunked-prefill-size")
      s.scheduler.chunked_prefill_size = std::stoi(value);
    else if (flag == "--max-running-requests")
      s.memory.max_running_requests = std::stoi(value);
    else if (flag == "--mamba-full-memory-ratio")
      s.memory.mamba_full_memory_ratio = std::stod(value);
    else if (flag == "--dtype")
      s.model.dtype = value;
    else
      FAIL() << flag;
  }
}

TEST(Forecast, ALaptopIsTooSmallFor671BillionParameters) {
  const ForecastInput q = input("configs/deepseek_v3", 32 * kGb);
  const Forecast f = must(q);
  ASSERT_FALSE(f.fits());
  EXPECT_EQ(f.refusal->code, ErrorCode::out_of_memory);
  EXPECT_EQ(exit_status(f.refusal->code), 4);
  EXPECT_EQ(f.largest_batch, 0);
  EXPECT_GT(f.memory.weight_bytes, 670 * kGb);
  // The advised amount of memory is enough, and not much too large.
  const auto advice = advise(q, f);
  ASSERT_TRUE(advice.has_value());
  EXPECT_FALSE(advice->fits);
  ForecastInput enough = input("configs/deepseek_v3", advice->needed_bytes);
  apply(advice->flags, enough.settings);
  EXPECT_TRUE(must(enough).fits());
  enough.available_bytes = advice->needed_bytes / 100 * 98;
  EXPECT_FALSE(must(enough).fits());
}

// The numbers of ranks and the contexts that are named, with the flags that were given and with
// those of the advice.
TEST(Forecast, SoManyRanksAreEnoughAndOneFewerIsNot) {
  for (const char* model :
       {"configs/deepseek_v3", "configs/qwen3_235b_a22b", "configs/qwen3_5_397b_a17b"}) {
    ForecastInput q = input(model, 128 * kGb);
    const Forecast one = must(q);
    ASSERT_FALSE(one.fits()) << model;
    const auto advice = advise(q, one);
    ASSERT_TRUE(advice.has_value());
    for (const ServerSettings& settings : {ServerSettings(q.settings), advice->settings}) {
      q.settings = settings;
      const std::optional<FittingRanks> found = fitting_ranks(q, must(q), 1);
      ASSERT_TRUE(found.has_value()) << model;
      q.settings.parallel.ep_size = found->ranks;
      const Forecast enough = must(q);
      EXPECT_TRUE(enough.fits()) << model << ", " << found->ranks;
      EXPECT_EQ(enough.memory.context_length, found->context_length);
      q.settings.parallel.ep_size = found->ranks - 1;
      EXPECT_FALSE(must(q).fits()) << model << ", " << found->ranks;
    }
  }
}

TEST(Forecast, RanksFillTheirHostsAndMayNeverBeEnough) {
  const ForecastInput q = input("configs/deepseek_v3", 256 * kGb);
  const auto single = fitting_ranks(q, must(q), 1), of_three = fitting_ranks(q, must(q), 3);
  ASSERT_TRUE(single && of_three);
  EXPECT_GE(single->ranks, 4);  // 671 GB of weights, and attention on each
  EXPECT_EQ(of_three->ranks % 3, 0);
  EXPECT_GE(of_three->ranks, single->ranks);
  const ForecastInput tiny = input("configs/deepseek_v3", 16 * kGb);
  EXPECT_FALSE(fitting_ranks(tiny, must(tiny), 1));  // attention alone needs more
}

TEST(Forecast, TheRoomsAreThere) {
  ForecastInput q = input("configs/qwen3_235b_a22b", 620 * kGb);
  q.settings.memory.max_running_requests = 16;
  const Forecast f = must(q);
  ASSERT_TRUE(f.fits());
  ASSERT_GT(f.largest_context, 1024);
  ASSERT_LT(f.largest_context, f.memory.context_length);
  const auto holds = [&](int batch, int context) {
    q.settings.model.context_length = context;
    q.settings.memory.max_running_requests = batch;
    q.settings.memory.max_total_tokens = int64_t{batch} * context;
    return must(q).fits();
  };
  EXPECT_TRUE(holds(16, f.largest_context));
  EXPECT_FALSE(holds(16, f.largest_context + 32));
  EXPECT_TRUE(holds(f.largest_batch, f.memory.context_length));
  EXPECT_FALSE(holds(f.largest_batch + 1, f.memory.context_length));
}

TEST(Forecast, AdviceThatMakesItFitDoes) {
  for (const char* model : {"configs/qwen3_235b_a22b", "configs/deepseek_v2_lite"}) {
    ForecastInput q = input(model, kGb);
    const int64_t bf16 = must(q).memory.weight_bytes;
    q.total_bytes = q.available_bytes = bf16 * 8 / 10;
    const Forecast f = must(q);
    ASSERT_FALSE(f.fits());
    const auto advice = advise(q, f);
    ASSERT_TRUE(advice.has_value());
    EXPECT_TRUE(advice->fits);
    EXPECT_EQ(advice->flags, "--quantization int8") << model;
    apply(advice->flags, q.settings);
    EXPECT_TRUE(must(q).fits()) << model;
  }
}

TEST(Forecast, AContextThatIsTooLongIsAnsweredByTheMildestChange) {
  ForecastInput q = input("configs/deepseek_v2_lite", kGb);
  q.settings.model.context_length = 163840;
  const Forecast sizes = must(q);
  // There is room for three quarters of the context.
  q.total_bytes = q.available_bytes = static_cast<int64_t>(
      (static_cast<double>(sizes.memory.weight_bytes + sizes.memory.work_bytes) +
       0.75 * 163840 * static_cast<double>(sizes.cost.kv_bytes_per_token())) /
      kDefaultMemoryShare);
  const Forecast f = must(q);
  ASSERT_FALSE(f.fits());
  EXPECT_EQ(f.refusal->code, ErrorCode::kv_does_not_fit);
  const auto advice = advise(q, f);
  ASSERT_TRUE(advice.has_value());
  EXPECT_EQ(advice->flags, "--kv-cache-dtype int8");
  apply(advice->flags, q.settings);
  EXPECT_TRUE(must(q).fits());
}

TEST(Forecast, AShareOfStatesThatIsTooSmallIsPlannedInstead) {
  ForecastInput q = input("golden/qwen3_5_moe", 16 * kGb);
  q.settings.memory.mamba_full_memory_ratio = 1e-6;
  const Forecast f = must(q);
  ASSERT_FALSE(f.fits());
  EXPECT_TRUE(f.refusal->fix.starts_with("--mamba-full-memory-ratio 0")) << f.refusal->fix;
  const auto advice = advise(q, f);
  ASSERT_TRUE(advice.has_value());
  EXPECT_TRUE(advice->fits);
  EXPECT_EQ(advice->flags, "--mamba-full-memory-ratio 0");
  apply(advice->flags, q.settings);
  EXPECT_TRUE(must(q).fits());
}

TEST(Forecast, AdviceThatMakesItFasterDoes) {
  ForecastInput q = input("configs/qwen3_235b_a22b", 700 * kGb);
  const Forecast before = must(q);
  ASSERT_TRUE(before.fits());
  const auto advice = advise(q, before);
  ASSERT_TRUE(advice.has_value());
  EXPECT_THAT(advice->flags, HasSubstr("--quantization"));
  EXPECT_EQ(advice->batch, 1);
  EXPECT_DOUBLE_EQ(advice->tokens_per_s_before, before.decode[0].tokens_per_s);
  EXPECT_GT(advice->tokens_per_s, 1.05 * advice->tokens_per_s_before);
  apply(advice->flags, q.settings);
  EXPECT_DOUBLE_EQ(must(q).decode[0].tokens_per_s, advice->tokens_per_s);
}

TEST(Forecast, LargerBatchesAreFasterInAllAndSlowerForEach) {
  const Forecast f = must(input("configs/qwen3_235b_a22b", 4000 * kGb));
  ASSERT_GE(f.decode.size(), 3);
  for (size_t i = 1; i < f.decode.size(); ++i) {
    EXPECT_GT(f.decode[i].tokens_per_s, f.decode[i - 1].tokens_per_s);
    EXPECT_LT(f.decode[i].tokens_per_s / f.decode[i].batch,
              f.decode[i - 1].tokens_per_s / f.decode[i - 1].batch);
  }
  EXPECT_GT(f.prefill_tokens_per_s, f.decode[0].tokens_per_s);
}

TEST(Forecast, ABadSettingIsAnError) {
  ForecastInput q = input("configs/deepseek_v3", kGb);
  q.settings.memory.page_size = 48;
  EXPECT_EQ(forecast(q).error().code, ErrorCode::bad_value);
  q = input("configs/no_such_model", kGb);
  EXPECT_EQ(forecast(q).error().code, ErrorCode::model_not_found);
}

// A rank has all weights except the experts of others, and computes for itself.
TEST(Forecast, SeveralRanksShareTheExperts) {
  ForecastInput q = input("configs/deepseek_v2_lite", 64 * kGb);
  const Forecast one = must(q);
  q.settings.parallel.ep_size = 4;
  const Forecast four = must(q);
  const int64_t experts = one.cost.part(WeightPart::experts).bytes;
  EXPECT_EQ(four.memory.weight_bytes, one.memory.weight_bytes - experts + experts / 4);
  EXPECT_GT(four.memory.work_bytes, one.memory.work_bytes);  // room for other ranks' rows
  ASSERT_EQ(four.decode.size(), one.decode.size());
  for (size_t i = 0; i < four.decode.size(); ++i) {
    EXPECT_GT(four.decode[i].tokens_per_s, one.decode[i].tokens_per_s);
    EXPECT_LT(four.decode[i].tokens_per_s, 8 * one.decode[i].tokens_per_s);
  }
  q.link.gbit_per_s = 0.1;
  EXPECT_LT(must(q).prefill_tokens_per_s, 0.5 * four.prefill_tokens_per_s);
  q.settings.model.model_path = (source_dir() / "tests/golden/qwen3").string();  // has no experts
  EXPECT_FALSE(forecast(q).has_value());
}

}  // namespace
}  // namespace hocket
