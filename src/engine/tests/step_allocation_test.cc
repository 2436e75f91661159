// Tests that a decode step after warm-up allocates nothing, because memory is planned at start.
#include <algorithm>
#include <thread>

#include "base/count_allocations_testing.h"
#include "base/log.h"
#include "engine/sampler.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using namespace testing;

struct AllocationCase {
  const char* name;
  const char* model;
  const char* overlap_schedule;
  SpeculationSettings speculation = {};
};

class StepAllocation : public ::testing::TestWithParam<AllocationCase> {};

TEST_P(StepAllocation, OfADecodeStepIsNone) {
  log::set_level(log::Level::off);
  ServerSettings settings = settings_for(GetParam().model);
  settings.scheduler.overlap_schedule = GetParam().overlap_schedule;
  settings.speculation = GetParam().speculation;
  const int num_drafts = settings.speculation.num_steps;
  auto engine = make_engine(settings);
  ASSERT_NE(engine, nullptr);
  // Recording of expert statistics allocates nothing either.
  ASSERT_TRUE(engine->parts().expert_stats->start({ExpertRecordMode::per_pass, 16}).has_value());
  Outbox outbox(65536);
  for (int i = 0; i < 8; ++i) {
    std::vector<int> prompt(5 + 13 * i, 40 + i);
    RequestInput input = greedy_input(prompt, 400);
    input.id = Engine::next_request_id();
    SamplingParams& p = input.sampling;
    p.ignore_eos = true;
    p.temperature = i % 2;
    p.seed = i;
    if (num_drafts > 0) p.logit_bias = {{TokenId{7}, 50.0F}};  // the answer repeats itself
    if (i == 3) p.top_k = 10, p.top_p = 0.9, p.frequency_penalty = 0.1;
    if (i == 5) p.stop_ids = {TokenId{511}}, p.min_new_tokens = 400;
    ASSERT_TRUE(engine->submit(std::move(input)).has_value());
  }
  const int warm_up = 40 / (1 + num_drafts);  // steps give more tokens with drafts
  for (int i = 0; i < warm_up; ++i) ASSERT_TRUE(engine->step(outbox));
  while (outbox.pop()) {
  }
  const int num_steps = 70 / (1 + num_drafts);  // at most so that every request goes on
  const uint64_t decode_steps = engine->stats().steps.num_decode;
  const int64_t before = num_allocations;
  EXPECT_GT(before, 0);
  for (int i = 0; i < num_steps; ++i) {
    engine->step(outbox);
    while (outbox.pop()) {
    }
  }
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(engine->stats().steps.num_decode - decode_steps, num_steps);
  EXPECT_EQ(engine->stats().scheduler.num_verified_total > 20, num_drafts > 0);
  EXPECT_EQ(engine->stats().scheduler.num_running, 8);
  EXPECT_EQ(engine->stats().steps.num_overlapped > 0,
            GetParam().overlap_schedule == std::string("on"));
  log::set_level(log::Level::info);
}

INSTANTIATE_TEST_SUITE_P(
    OverlapSchedule, StepAllocation,
    ::testing::Values(AllocationCase{"off", "tests/golden/qwen3_moe", "off"},
                      AllocationCase{"on", "tests/golden/qwen3_moe", "on"},
                      AllocationCase{"drafts",
                                     "tests/golden/qwen3_moe",
                                     "off",
                                     {.algorithm = "NGRAM", .num_steps = 2}},
                      AllocationCase{"drafts_delta",
                                     "tests/golden/qwen3_next",
                                     "off",
                                     {.algorithm = "NGRAM", .num_steps = 2}},
                      AllocationCase{"delta_nets", "tests/golden/qwen3_next", "on"},
                      AllocationCase{"kimi_linear", "tests/golden/kimi_linear", "on"},
                      AllocationCase{"gemma4", "tests/golden/gemma4_moe", "on"},
                      AllocationCase{"own_module",
                                     "tests/golden/qwen3_next_mtp",
                                     "off",
                                     {.algorithm = "NEXTN", .num_steps = 3}}),
    [](const auto& param) { return std::string(param.param.name); });

// Nothing is allocated by idle steps, agreements, exchanges, booking and planning, in any plan; a
// change of plan allocates only its log line. With one request, one of the ranks has no rows.
class StepAllocationOfRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(StepAllocationOfRanks, IsNone) {
  log::set_level(log::Level::off);
  for (const int num_requests : {1, 4}) {
    const std::string_view way = GetParam();
    const bool drafts = way == "own-module", overlapped = way == "overlapped";
    ServerSettings settings =
        settings_for(drafts ? "tests/golden/qwen3_next_mtp" : "tests/golden/qwen3_moe");
    settings.parallel.ep_size = 2;
    settings.parallel.overlap = drafts || overlapped ? "auto" : way;
    settings.scheduler.overlap_schedule = overlapped ? "on" : "off";
    if (drafts) settings.speculation = {.algorithm = "NEXTN", .num_steps = 2};
    settings.scheduler.decode_log_interval = 1000;  // a line that tells of drafts allocates
    settings.parallel.dp_routing = "round-robin";
    auto engine = make_engine(settings);
    ASSERT_NE(engine, nullptr);
    Outbox outbox(65536);
    for (int i = 0; i < num_requests; ++i) {
      RequestInput input = greedy_input(std::vector<int>(9 + i, 40 + i), 200);
      input.id = Engine::next_request_id();
      input.sampling.ignore_eos = true;
      ASSERT_TRUE(engine->submit(std::move(input)).has_value());
    }
    engine->start(outbox);  // all begin together, so that none is admitted while steps are counted
    const auto wait_for = [&](int tokens_each) {
      const TimePoint deadline = RealClock().now() + std::chrono::seconds(60);
      while (outbox.size() < static_cast<size_t>(tokens_each * num_requests)) {
        ASSERT_LT(RealClock().now(), deadline);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    wait_for(60);
    const int64_t before = num_allocations;
    EXPECT_GT(before, 0);
    wait_for(150);
    EXPECT_EQ(num_allocations - before, 0);
    engine->stop();
    EXPECT_GT(engine->stats().overlap.step_seconds, 0);
  }
  log::set_level(log::Level::info);
}

// Log-probabilities are the one thing that sampling allocates.
TEST(SamplerWithoutMemory, FailsTheRowAndNotTheProcess) {
  WorkerPool workers({.num_workers = 1});
  Backend backend = *Backend::create(detect_isa(), workers, 1 << 20);
  Sampler sampler(8, 1);
  const std::vector<float> logits = {0, 1, 2, 3, 4, 5, 6, 7};
  const SamplingParams params = {.num_top_logprobs = 2};
  const SampleRow row = {.params = &params, .prompt = {}, .generated = {}, .end_ids = {}};
  for (const bool has_memory : {true, false, true}) {
    SampledToken token;
    std::unique_ptr<PositionLogprobs> logprobs;
    if (!has_memory) max_allocated_bytes = 0;
    sampler.sample(backend, View<const float>(logits.data(), 1, 8), std::span(&row, 1),
                   std::span(&token, 1), std::span(&logprobs, 1));
    max_allocated_bytes = SIZE_MAX;
    EXPECT_EQ(token.failed, !has_memory);
    EXPECT_EQ(token.no_memory, !has_memory);
    EXPECT_EQ(logprobs != nullptr, has_memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Overlap, StepAllocationOfRanks,
                         ::testing::Values("auto", "none", "single-batch", "two-batch",
                                           "own-module", "overlapped"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace hocket
