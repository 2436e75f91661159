// Tests the promise of expert parallelism: the number of ranks that hold the experts, the rank that
// computes a request's rows, and the way rows travel change no bit. Results must equal those of one
// rank that holds all experts and has as many combine groups.
#include "compute/models/ep_ranks_testing.h"
#include "compute/overlap/testing.h"
#include "compute/overlap/tuning.h"

namespace hocket::testing {
namespace {

enum class Travel : uint8_t { prefill, decode, by_step };
constexpr int kTravels = 3;

Phase phase_of(Travel travel, int step) {
  if (travel == Travel::by_step)
    return step <= Script::kLastPrefill ? Phase::prefill : Phase::decode;
  return travel == Travel::prefill ? Phase::prefill : Phase::decode;
}

constexpr LinkModel kSlowLinks = {.bytes_per_s = 1e8,
                                  .latency = std::chrono::microseconds(20),
                                  .jitter = std::chrono::microseconds(200),
                                  .seed = 7};

// Plays the script on several ranks and expects the results of one rank.
class SameBits {
 public:
  SameBits(const ModelCase& model, int num_ranks, LoopbackHub::Time time, const LinkModel& links)
      : model_(model), num_ranks_(num_ranks), time_(time), links_(links) {}

  void expect(int groups, Travel travel, const Order& order, const Grain& grain) {
    Script::Bits& want = want_[groups];
    if (want[0].empty()) want = on_one_rank(model_, groups);
    Ranks ranks(model_, num_ranks_, groups);
    if (travel == Travel::by_step) ranks.max_decode_rows = Script::kSequences;
    LoopbackHub hub(num_ranks_, links_, time_);
    const auto step_plan = [&](int step, const Player&, int) {
      return StepPlan{.phase = phase_of(travel, step),
                      .order = &order,
                      .parts = grain.parts,
                      .waves = grain.waves};
    };
    EXPECT_EQ(on_ranks_together(ranks, hub, step_plan), want)
        << num_ranks_ << " ranks, " << groups << " groups, " << order.name << ", " << grain.parts
        << " parts, " << grain.waves << " waves, travel " << static_cast<int>(travel);
  }

 private:
  ModelCase model_;
  int num_ranks_;
  LoopbackHub::Time time_;
  LinkModel links_;
  std::map<int, Script::Bits> want_;
};

const Grain& grain_at(int i) {
  return kTuning.grains[static_cast<size_t>(i) % kTuning.grains.size()];
}

class ExpertParallel : public ::testing::TestWithParam<ModelCase> {
 protected:
  // Plays every named order. Travels, grains and numbers of groups are combined with the orders in
  // pairs, not all with all.
  void expect_same(int num_ranks, LoopbackHub::Time time, const LinkModel& links) {
    const int experts = config_of(GetParam()).moe.num_experts;
    SameBits same(GetParam(), num_ranks, time, links);
    const OrderTable& orders = OrderTable::builtin();
    for (int i = 0; i < orders.size() && !HasFailure(); ++i) {
      same.expect(4, static_cast<Travel>(i % kTravels), orders.at(i), grain_at(i));
      same.expect(experts, static_cast<Travel>((i + 1) % kTravels), orders.at(i),
                  grain_at(3 * i + 1));
    }
  }
};

TEST_P(ExpertParallel, OneRankOverTheExchange) {
  expect_same(1, LoopbackHub::Time::real, {});
}

TEST_P(ExpertParallel, TwoRanks) {
  expect_same(2, LoopbackHub::Time::real, {});
}

TEST_P(ExpertParallel, FourRanks) {
  expect_same(4, LoopbackHub::Time::real, {});
}

TEST_P(ExpertParallel, FourRanksOverSlowLinks) {
  expect_same(4, LoopbackHub::Time::virtual_time, kSlowLinks);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ExpertParallel,
    ::testing::Values(
        ModelCase{"qwen3_moe", "tests/golden/qwen3_moe", DType::bf16}, kQwenInt8Sums,
        ModelCase{"qwen3_moe_fp32", "tests/golden/qwen3_moe", DType::f32},
        ModelCase{"deepseek_v3", "tests/golden/deepseek_v3_bf16", DType::bf16},
        ModelCase{"deepseek_v3_fp32", "tests/golden/deepseek_v3", DType::f32},
        ModelCase{"qwen3_next", "tests/golden/qwen3_next", DType::bf16},
        ModelCase{"qwen3_5_moe_fp32", "tests/golden/qwen3_5_moe", DType::f32},
        ModelCase{"mimo_v2_flash", "tests/golden/mimo_v2_flash", DType::bf16},
        ModelCase{"gpt_oss", "tests/golden/gpt_oss", DType::bf16},
        ModelCase{"llama4", "tests/golden/llama4", DType::bf16},
        ModelCase{"llama4_fp32_int8", "tests/golden/llama4", DType::f32, true, true},
        ModelCase{"step3p7", "tests/golden/step3p7", DType::bf16},
        ModelCase{"kimi_linear", "tests/golden/kimi_linear", DType::bf16},
        ModelCase{"gemma4_moe", "tests/golden/gemma4_moe", DType::bf16},
        ModelCase{"gemma4_moe_fp32_int8", "tests/golden/gemma4_moe", DType::f32, true},
        ModelCase{"minimax_m2", "tests/golden/minimax_m2", DType::bf16},
        ModelCase{"glm4_moe_lite", "tests/golden/glm4_moe_lite", DType::bf16},
        ModelCase{"gpt_oss_mxfp4", "tests/golden/gpt_oss_mxfp4", DType::bf16},
        ModelCase{"qwen3_moe_nvfp4", "tests/golden/qwen3_moe_nvfp4", DType::bf16},
        ModelCase{"qwen3_moe_mxfp4", "tests/golden/qwen3_moe_mxfp4", DType::bf16},
        ModelCase{"qwen3_vl_moe", "tests/golden/qwen3_vl_moe", DType::bf16},
        ModelCase{"kimi_k25", "tests/golden/kimi_k25", DType::bf16},
        ModelCase{"ernie4_5_moe", "tests/golden/ernie4_5_moe", DType::bf16},
        ModelCase{"mistral4", "tests/golden/mistral4", DType::bf16},
        ModelCase{"bundled", "models/hocket-tiny-qwen3-moe", DType::bf16},
        ModelCase{"qwen3_moe_int8", "tests/golden/qwen3_moe", DType::bf16, true},
        ModelCase{"deepseek_v3_fp32_int8", "tests/golden/deepseek_v3", DType::f32, true}),
    [](const auto& param) { return std::string(param.param.name); });

// All orders, travels and grains are combined. A single rank plays every plan in one message.
TEST(ExpertParallelPlans, EveryOrderWithAnyTravelPartsAndWaves) {
  const OrderTable& orders = OrderTable::builtin();
  for (const int num_ranks : {1, 2, 4}) {
    SameBits same(kQwen, num_ranks, LoopbackHub::Time::real, {});
    for (int i = 0; i < orders.size() && !HasFailure(); ++i)
      for (const Travel travel : {Travel::prefill, Travel::decode, Travel::by_step})
        for (const Grain& grain :
             std::span(kTuning.grains).first(num_ranks == 1 ? 1 : kTuning.grains.size()))
          same.expect(4, travel, orders.at(i), grain);
  }
}

// Ranks that hold other parts of the tree than aligned ones send several sums of a row.
TEST(ExpertParallelRanks, AnyNumberOfThem) {
  constexpr ModelCase kWide = {"bundled", "models/hocket-tiny-qwen3-moe", DType::bf16};
  constexpr ModelCase kWide32 = {"bundled_fp32", kWide.folder, DType::f32};
  constexpr ModelCase kWindows = {"gpt_oss_mxfp4", "tests/golden/gpt_oss_mxfp4", DType::bf16};
  const Order& order = OrderTable::builtin().at(1);
  for (const ModelCase& model :
       {kQwen, kQwenInt8, kQwenInt8Sums, kDeepseek, kQwenNext, kWindows, kWide, kWide32})
    for (const int num_ranks : {3, 5, 8}) {
      SameBits same(model, num_ranks, LoopbackHub::Time::real, {});
      for (const int groups : {8, config_of(model).moe.num_experts})
        for (const Grain& grain : {Grain{}, Grain{2, 1}, Grain{1, 2}, Grain{2, 4}})
          for (const Travel travel : {Travel::prefill, Travel::decode, Travel::by_step})
            same.expect(groups, travel, order, grain);
    }
}

// If these forms had equal bits, the tests above would prove nothing.
TEST(ExpertParallelForms, ChangeBits) {
  EXPECT_NE(on_one_rank(kQwen, 1), on_one_rank(kQwen, 4));
  EXPECT_NE(on_one_rank(kQwen, 4), on_one_rank(kQwenInt8, 4));
  EXPECT_NE(on_one_rank(kQwen, 4), on_one_rank(kQwenInt8Sums, 4));
}

TEST(ExpertParallelPlacement, SingleExpertsMayBeAnywhere) {
  const int experts = config_of(kQwen).moe.num_experts;
  for (const ModelCase& model : {kQwen, kQwenInt8, kQwenInt8Sums}) {
    const Script::Bits want = on_one_rank(model, experts);
    for (const int num_ranks : {2, 3, 4}) {
      for (const Places places : {Places::scattered, Places::replicated}) {
        const Ranks ranks(model, num_ranks, experts, places);
        LoopbackHub hub(num_ranks, {}, LoopbackHub::Time::real);
        const auto step_plan = [](int step, const Player&, int) {
          return StepPlan{.phase = phase_of(Travel::by_step, step)};
        };
        EXPECT_EQ(on_ranks_together(ranks, hub, step_plan), want)
            << num_ranks << (places == Places::replicated ? " with replicas" : "");
      }
    }
  }
  EXPECT_NE(placement_of(experts, 2, Places::scattered, experts).fingerprint(),
            placement_of(experts, 2, Places::contiguous, experts).fingerprint());
}

TEST(ExpertParallelWeights, ARankLoadsItsOwnExperts) {
  const auto bytes = [](int num_ranks, int rank) {
    return share_of(kQwen, num_ranks, rank).memory.bytes();
  };
  const ModelConfig& config = share_of(kQwen, 1, 0).model.config();
  const int64_t experts = bytes(1, 0) - bytes(4, 0);
  EXPECT_EQ(bytes(4, 0), bytes(4, 3));
  EXPECT_EQ(experts / 3 * 2, bytes(1, 0) - bytes(2, 1));
  const int64_t numbers = 3 * int64_t{config.hidden_size} * config.moe.intermediate_size;
  const int64_t moe_layers = std::ranges::count(config.layer_is_moe, true);
  EXPECT_EQ(experts, moe_layers * config.moe.num_experts * 3 / 4 * numbers * 2);
}

}  // namespace
}  // namespace hocket::testing
