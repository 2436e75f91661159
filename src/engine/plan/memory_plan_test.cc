// Tests memory plans with numbers.
#include "engine/plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/kv/state_pool.h"
#include "engine/plan/plan_case_testing.h"
#include "policy/scheduler/batch.h"

namespace hocket {
namespace {

using testing::choice_of;
using ::testing::HasSubstr;
using testing::kGb;
using testing::model;
using testing::PlanCase;
using testing::used;

TEST(MemoryPlan, TakesItsShareOfWhatIsAvailable) {
  const auto plan = PlanCase{}.plan();
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_EQ(plan->budget_bytes, static_cast<int64_t>(kDefaultMemoryShare * 8e9));
  EXPECT_EQ(plan->context_length, 32768);
  EXPECT_EQ(plan->max_running_requests, kDefaultRunningRequests);
  EXPECT_EQ(plan->kv_bytes, plan->num_pages * int64_t{1'000'000});
  EXPECT_LE(used(*plan), plan->budget_bytes);
  // All memory that is left becomes pages.
  EXPECT_GT(used(*plan) + 1'000'000, plan->budget_bytes);
  EXPECT_TRUE(plan->changes.empty());
}

TEST(MemoryPlan, ChunksAreAsLongAsTheProductsNeed) {
  const auto chunk = [](Isa isa, int asked) {
    const ModelConfig m = model();
    ServerSettings settings;
    settings.scheduler.chunked_prefill_size = asked;
    return plan_memory({.settings = settings,
                        .model = m,
                        .weight_bytes = kGb,
                        .page_bytes = 1'000'000,
                        .total_bytes = 10 * kGb,
                        .available_bytes = 8 * kGb,
                        .isa = isa})
        .value()
        .chunk_tokens;
  };
  EXPECT_EQ(chunk(Isa::avx512, 0), kLaneChunk);
  EXPECT_EQ(chunk(Isa::amx, 0), kTileChunk);
  EXPECT_EQ(chunk(Isa::avx512, 1024), 1024);
  EXPECT_EQ(chunk(Isa::amx, -1), -1);
}

// Ranks need slots for each other's rows, and room at their experts for the rows of all.
TEST(MemoryPlan, RanksNeedMoreWorkBuffers) {
  ModelConfig m = model();
  m.layer_is_moe = {true, true};
  m.moe.num_experts = 8;
  m.moe.top_k = 2;
  m.moe.intermediate_size = 64;
  const ServerSettings settings;
  const auto plan = [&](const Placements* placement) {
    return plan_memory({.settings = settings,
                        .model = m,
                        .dtype = DType::bf16,
                        .weight_bytes = kGb,
                        .page_bytes = 1'000'000,
                        .total_bytes = 10 * kGb,
                        .available_bytes = 8 * kGb,
                        .placement = placement,
                        .combine_groups = 4});
  };
  const auto alone = plan(nullptr);
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->work.exchange.num_ranks, 0);
  int64_t before = alone->work_bytes;
  for (const int num_ranks : {2, 4}) {
    const Placements placement = *Placement::contiguous(8, num_ranks);
    const auto several = plan(&placement);
    ASSERT_TRUE(several.has_value()) << describe(several.error());
    EXPECT_EQ(several->work.exchange.num_ranks, num_ranks);
    EXPECT_EQ(several->work.exchange.max_decode_rows, several->max_running_requests);
    EXPECT_EQ(max_rows_of_ranks(several->work), num_ranks * several->work.max_rows);
    // Each other rank needs at least a slot for a dispatch of the longest step.
    const int64_t rows = int64_t{num_ranks - 1} * several->work.max_rows;
    EXPECT_GT(several->work_bytes, alone->work_bytes + rows * m.hidden_size * 2);
    EXPECT_GT(several->work_bytes, before);
    before = several->work_bytes;
    EXPECT_LT(several->num_pages, alone->num_pages);
  }
}

TEST(MemoryPlan, SaysIfTooFewTokensAreAskedFor) {
  PlanCase c;
  c.settings.model.context_length = 1024;
  c.settings.memory.max_total_tokens = 64;
  const auto plan = c.plan();
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().param, "max-total-tokens");
  EXPECT_NE(plan.error().fix.find("--max-total-tokens 1024 |"), std::string::npos);
}

// A setting is never dropped in silence.
TEST(MemoryPlan, SaysWhichRatiosChangeNothing) {
  PlanCase c;
  c.settings.memory.mamba_full_memory_ratio = 5;
  c.settings.memory.swa_full_tokens_ratio = 0.5;
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->changes.size(), 2u);
  EXPECT_EQ(plan->changes[0].flag, "--mamba-full-memory-ratio");
  EXPECT_EQ(plan->changes[1].flag, "--swa-full-tokens-ratio");
}

TEST(MemoryPlan, FractionIsOfTheWholeMemory) {
  PlanCase c;
  c.settings.memory.mem_fraction_static = 0.5;
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->budget_bytes, 5 * kGb);
}

TEST(MemoryPlan, NoMorePagesThanRequestsCanUse) {
  PlanCase c;
  c.settings.memory.max_running_requests = 2;
  c.settings.model.context_length = 1000;
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->num_pages, 63);  // 2000 tokens in pages of 32
}

TEST(MemoryPlan, WeightsThatDoNotFitAreRefusedWithNumbersAndARemedy) {
  PlanCase c;
  c.weight_bytes = 7 * kGb;  // the budget is 6.8 GB
  const auto plan = c.plan();
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(describe(plan.error()), HasSubstr("HK040"));
  EXPECT_THAT(plan.error().message, HasSubstr("7.00 GB"));
  EXPECT_THAT(plan.error().message, HasSubstr("6.80 GB"));
  EXPECT_THAT(plan.error().fix, HasSubstr("--mem-fraction-static"));
}

TEST(MemoryPlan, AnAskedContextThatDoesNotFitIsRefusedWithTheOneThatDoes) {
  PlanCase c;
  c.page_bytes = 20'000'000;  // 32768 tokens: 1024 pages, 20.48 GB
  c.settings.model.context_length = 32768;
  const auto plan = c.plan();
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kv_does_not_fit);
  EXPECT_THAT(describe(plan.error()), HasSubstr("HK041"));
  EXPECT_THAT(plan.error().message, HasSubstr("32768-token request needs 20.48 GB"));

  // The remedy works.
  const std::string flag = "--context-length ";
  ASSERT_THAT(plan.error().fix, HasSubstr(flag));
  c.settings.model.context_length =
      std::stoi(plan.error().fix.substr(plan.error().fix.find(flag) + flag.size()));
  EXPECT_GE(c.settings.model.context_length, 1024);
  EXPECT_TRUE(c.plan().has_value());
}

TEST(MemoryPlan, TheModelsOwnContextIsLoweredAndSaid) {
  PlanCase c;
  c.page_bytes = 20'000'000;
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_LT(plan->context_length, 32768);
  EXPECT_EQ(plan->context_length % 1024, 0);
  ASSERT_EQ(plan->changes.size(), 1);
  EXPECT_EQ(plan->changes[0].flag, "--context-length");
  EXPECT_EQ(plan->changes[0].from, "32768");
  EXPECT_EQ(plan->changes[0].to, std::to_string(plan->context_length));
}

TEST(MemoryPlan, AskedTokensThatDoNotFitAreRefused) {
  PlanCase c;
  c.settings.memory.max_total_tokens = 1'000'000;
  const auto plan = c.plan();
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kv_does_not_fit);
  EXPECT_THAT(plan.error().fix, HasSubstr("--max-total-tokens"));
}

// A model whose second layer has a window of 128 tokens, or another reach; a page takes as much in
// both layers.
Result<MemoryPlan> plan_with_windows(const ServerSettings& settings,
                                     const VisibleKeys& visible = {.window = 128}) {
  ModelConfig m = model();
  m.local = m.far_attention();
  m.local.visible = visible;
  m.layer_is_local = {false, true};
  return plan_memory({.settings = settings,
                      .model = m,
                      .dtype = DType::bf16,
                      .weight_bytes = 1 * kGb,
                      .page_bytes = 1'000'000,
                      .window_page_bytes = 1'000'000,
                      .total_bytes = 10 * kGb,
                      .available_bytes = 8 * kGb});
}

TEST(MemoryPlan, WindowLayersTakeWhatRequestsAndPrefixesNeed) {
  ServerSettings settings;
  settings.memory.max_running_requests = 8;
  const auto plan = plan_with_windows(settings);
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_LT(plan->num_window_pages, plan->num_pages / 4);
  EXPECT_GT(plan->num_window_pages, 8 * 6 + plan->chunk_tokens / 32);
  EXPECT_EQ(plan->window_bytes, (plan->num_window_pages + 1) * int64_t{1'000'000});
  EXPECT_EQ(plan->kv_bytes, plan->num_pages * int64_t{1'000'000} + plan->window_bytes);
  EXPECT_LE(used(*plan), plan->budget_bytes);
  // All memory that is left becomes pages.
  EXPECT_GT(used(*plan) + 9'000'000, plan->budget_bytes);
}

// A chunk is a window whose beginning stays where it is for a while.
TEST(MemoryPlan, LayersThatSeeChunksTakeWhatWindowsOfTheirLengthDo) {
  ServerSettings settings;
  settings.memory.max_running_requests = 4;
  settings.memory.max_total_tokens = settings.model.context_length = 32'000;
  const auto plan = plan_with_windows(settings, {.chunk = 1024});
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_GE(plan->num_window_pages, (4 + 32'000 / (2 * 1024)) * (1024 / 32));
  EXPECT_LT(plan->num_window_pages, plan->num_pages);
  EXPECT_EQ(plan->num_window_pages,
            plan_with_windows(settings, {.window = 1024})->num_window_pages);
}

// config.json may hold a window of 2^30 tokens, of which twice is beyond an int.
TEST(MemoryPlan, AWindowBeyondTheContextTakesAPageForEachOfTheOthers) {
  const auto plan = plan_with_windows({}, {.window = 1 << 30});
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_EQ(plan->num_window_pages, plan->num_pages);
}

// A record of a store would be as long as a chunk, however short the prompt.
TEST(MemoryPlan, LayersThatSeeChunksKeepAllTokensBesideAStore) {
  ServerSettings settings;
  EXPECT_TRUE(choice_of("golden/llama4", settings).model.is_windowed(0));
  for (std::string* flag : {&settings.memory.kv_cache_dir, &settings.peers.kv_cache_peers}) {
    *flag = "there";
    const ModelConfig with_store = choice_of("golden/llama4", settings).model;
    EXPECT_FALSE(with_store.is_windowed(0));
    const auto plan = plan_memory({.settings = settings,
                                   .model = with_store,
                                   .dtype = DType::bf16,
                                   .page_bytes = 1'000'000,
                                   .total_bytes = 10 * kGb,
                                   .available_bytes = 8 * kGb});
    ASSERT_TRUE(plan.has_value()) << describe(plan.error());
    ASSERT_FALSE(plan->changes.empty());
    EXPECT_EQ(plan->changes[0].to, "kept for all tokens");
    EXPECT_FALSE(choice_of("golden/mimo_v2_flash", settings).model.keeps_chunks);
    flag->clear();
  }
}

TEST(MemoryPlan, TheShareOfWindowLayersCanBeAsked) {
  ServerSettings settings;
  settings.memory.max_total_tokens = settings.model.context_length = 32000;
  settings.memory.swa_full_tokens_ratio = 0.5;
  EXPECT_EQ(plan_with_windows(settings)->num_window_pages, 500);
  settings.memory.swa_full_tokens_ratio = 1;
  EXPECT_EQ(plan_with_windows(settings)->num_window_pages, 1000);
  settings.memory.swa_full_tokens_ratio = 0.001;
  const auto least = plan_with_windows(settings);
  EXPECT_GE(least->num_window_pages, 2 * 7) << "two requests";
  EXPECT_LT(least->num_window_pages, 30);
  ASSERT_FALSE(least->changes.empty());
  EXPECT_EQ(least->changes.back().flag, "requests that run beside a chunk of a prompt");
  EXPECT_EQ(least->changes.back().to, "0");
  settings.scheduler.chunked_prefill_size = -1;
  EXPECT_EQ(plan_with_windows(settings)->num_window_pages, 1000) << "a whole prompt of the context";
}

// A model with three delta nets, each with 1 MiB of matrices, and one layer of full attention.
ModelConfig model_with_states() {
  ModelConfig m = model();
  m.num_layers = 4;
  m.layer_is_moe.assign(4, false);
  m.layer_is_linear = {true, true, true, false};
  m.delta_net = {.num_key_heads = 16, .num_value_heads = 16, .key_dim = 128, .value_dim = 128};
  return m;
}

Result<MemoryPlan> plan_with_states(const ServerSettings& settings,
                                    int64_t available_bytes = 8 * kGb) {
  static const ModelConfig m = model_with_states();
  return plan_memory({.settings = settings,
                      .model = m,
                      .dtype = DType::bf16,
                      .weight_bytes = 1 * kGb,
                      .page_bytes = 1'000'000,
                      .total_bytes = 10 * kGb,
                      .available_bytes = available_bytes});
}

int64_t state_bytes_of(const MemoryPlan& plan) {
  const DeltaShape shape = delta_shape_of(model_with_states(), DType::bf16, plan.max_drafts);
  EXPECT_GT(shape.state_bytes(), 16 * 128 * 128 * 4) << "and inputs of the convolution";
  return StatePool::Sizes{shape, 3, plan.num_states, plan.num_blocks}.bytes();
}

TEST(MemoryPlan, StatesTakeTheirShare) {
  ServerSettings settings;
  settings.memory.max_running_requests = 8;
  const auto share_of = [](const MemoryPlan& plan) {
    const auto remaining =
        static_cast<double>(plan.budget_bytes - plan.weight_bytes - plan.work_bytes);
    return static_cast<double>(plan.state_bytes) / remaining;
  };
  for (const double ratio : {0.0, 0.25, 1.0}) {
    settings.memory.mamba_full_memory_ratio = ratio;
    const auto plan = plan_with_states(settings);
    ASSERT_TRUE(plan.has_value()) << describe(plan.error());
    EXPECT_EQ(plan->num_blocks, 8);
    EXPECT_EQ(plan->state_bytes, state_bytes_of(*plan));
    const double counts = ratio > 0 ? ratio : kDefaultStateRatio, share = counts / (1 + counts);
    EXPECT_LE(share_of(*plan), share);
    EXPECT_GT(share_of(*plan), share - 0.002) << "one state more would not fit";
    EXPECT_LE(used(*plan), plan->budget_bytes);
    EXPECT_TRUE(plan->changes.empty());
  }
}

// The prefix cache can keep at most one state for each border in the pages.
TEST(MemoryPlan, NoMoreStatesThanPagesHaveBorders) {
  ServerSettings settings;
  settings.memory.max_running_requests = 8;
  settings.memory.max_total_tokens = settings.model.context_length = 6400;
  const auto plan = plan_with_states(settings);
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_EQ(plan->num_states, 8 * kStatesOfARequest + 6400 / kDeltaBlock);
  EXPECT_EQ(plan->state_bytes, state_bytes_of(*plan));
  EXPECT_TRUE(plan->changes.empty()) << "no share was asked for";
  settings.memory.mamba_full_memory_ratio = 4;
  const auto asked = plan_with_states(settings);
  ASSERT_TRUE(asked.has_value()) << describe(asked.error());
  EXPECT_EQ(asked->num_states, plan->num_states);
  ASSERT_EQ(asked->changes.size(), 1u);
  EXPECT_EQ(asked->changes[0].flag, "--mamba-full-memory-ratio");
}

TEST(MemoryPlan, FewerRequestsRunIfTheirStatesDoNotFit) {
  ServerSettings settings;
  settings.memory.mamba_full_memory_ratio = 0.1;
  settings.model.context_length = 1024;
  const auto plan = plan_with_states(settings);
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_LT(plan->max_running_requests, kDefaultRunningRequests);
  EXPECT_EQ(plan->num_blocks, plan->max_running_requests);
  // A third of the states is for prefixes; with one request more it would be less.
  EXPECT_GE(plan->num_states, plan->num_blocks * (kStatesOfARequest + 1));
  EXPECT_LE(plan->num_states, (plan->num_blocks + 1) * (kStatesOfARequest + 1));
  ASSERT_EQ(plan->changes.size(), 1);
  const SettingChange& change = plan->changes[0];
  EXPECT_EQ(change.flag, "--max-running-requests");
  EXPECT_EQ(change.from, std::to_string(kDefaultRunningRequests));
  EXPECT_EQ(change.to, std::to_string(plan->max_running_requests));
  EXPECT_THAT(change.why, HasSubstr("for the states of 3 delta nets"));
  const int for_prefixes = plan->num_states - plan->num_blocks * kStatesOfARequest;
  EXPECT_THAT(change.why, HasSubstr(fmt::format("; {} more states are for", for_prefixes)));
  // Not even one.
  settings.memory.mamba_full_memory_ratio = 0.001;
  const auto none = plan_with_states(settings);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(none.error().message, HasSubstr("the states of one request do not fit"));
  EXPECT_THAT(none.error().fix, HasSubstr("--mamba-full-memory-ratio 0"));
}

TEST(MemoryPlan, ContradictionsAreNamed) {
  const auto code = [](auto change) {
    PlanCase c;
    change(c.settings);
    const auto plan = c.plan();
    return plan ? ErrorCode::internal : plan.error().code;
  };
  EXPECT_EQ(code([](auto& s) { s.memory.page_size = 48; }), ErrorCode::bad_value);
  EXPECT_EQ(code([](auto& s) { s.scheduler.chunked_prefill_size = 16; }), ErrorCode::bad_value);
  EXPECT_EQ(code([](auto& s) { s.scheduler.max_prefill_tokens = 16; }), ErrorCode::bad_value);
  EXPECT_EQ(code([](auto& s) { s.memory.mem_fraction_static = 1.5; }), ErrorCode::bad_value);
  EXPECT_EQ(code([](auto& s) { s.model.context_length = 40000; }), ErrorCode::bad_value);
  EXPECT_EQ(code([](auto& s) { s.memory.swa_full_tokens_ratio = 1.5; }), ErrorCode::bad_value);
}

}  // namespace
}  // namespace hocket
