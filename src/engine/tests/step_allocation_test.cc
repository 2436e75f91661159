// Tests that a decode step after warm-up allocates nothing, because memory is planned at start.
#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock_testing.h"
#include "base/count_allocations_testing.h"
#include "base/log.h"
#include "compute/moe/balancer.h"
#include "engine/balance/expert_mover.h"
#include "engine/rank_setup.h"
#include "engine/sampler.h"
#include "engine/tests/testing.h"
#include "engine/tests/tier_world.h"

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
  const bool drafts = settings.speculation.algorithm != "none";
  const bool chooses = drafts && num_drafts == 0;
  FakeClock clock;  // by it drafts cost nothing, so that the gate chooses them
  auto engine = make_engine(settings, chooses ? &clock : nullptr);
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
    if (drafts) p.logit_bias = {{TokenId{7}, 50.0F}};  // the answer repeats itself
    if (i == 3) p.top_k = 10, p.top_p = 0.9, p.frequency_penalty = 0.1;
    if (i == 5) p.stop_ids = {TokenId{511}}, p.min_new_tokens = 400;
    ASSERT_TRUE(engine->submit(std::move(input)).has_value());
  }
  const auto step = [&] {
    clock.advance(kFakeStep);
    return engine->step(outbox);
  };
  // Steps give more tokens with drafts. The gate needs some to begin.
  const int warm_up = chooses ? 30 : 40 / (1 + num_drafts);
  for (int i = 0; i < warm_up; ++i) ASSERT_TRUE(step());
  while (outbox.pop()) {
  }
  // At most so many that every request continues.
  const int num_steps = chooses ? 15 : 70 / (1 + num_drafts);
  const uint64_t decode_steps = engine->stats().steps.num_decode;
  const int64_t before = num_allocations;
  EXPECT_GT(before, 0);
  for (int i = 0; i < num_steps; ++i) {
    step();
    while (outbox.pop()) {
    }
  }
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(engine->stats().steps.num_decode - decode_steps, num_steps);
  EXPECT_EQ(engine->stats().scheduler.num_verified_total > 20, drafts);
  EXPECT_EQ(engine->stats().scheduler.num_running, 8);
  EXPECT_EQ(engine->stats().steps.num_overlapped > 0,
            GetParam().overlap_schedule == std::string("on"));
  log::set_level(log::Level::info);
}

INSTANTIATE_TEST_SUITE_P(
    OverlapSchedule, StepAllocation,
    ::testing::Values(
        AllocationCase{"off", "tests/golden/qwen3_moe", "off"},
        AllocationCase{"on", "tests/golden/qwen3_moe", "on"},
        AllocationCase{
            "drafts", "tests/golden/qwen3_moe", "off", {.algorithm = "NGRAM", .num_steps = 2}},
        AllocationCase{"gate", "tests/golden/qwen3_moe", "off", {.algorithm = "NGRAM"}},
        AllocationCase{"gate_of_two", "tests/golden/qwen3_next_mtp", "off", {.algorithm = "auto"}},
        AllocationCase{"auto_fixed",
                       "tests/golden/qwen3_next_mtp",
                       "off",
                       {.algorithm = "auto", .num_steps = 3}},
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

// The time of this clock moves between steps. So drafts cost next to nothing, and begin when it is
// known what overlap saves.
class StepClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(ns_.load())); }
  void end_step() { ns_ += 1'000'000; }

 private:
  std::atomic<int64_t> ns_{0};
};

// The model's own module follows overlapped steps and looks whether drafts pay. Mostly it drafts
// then, but that depends on which of these looks the forward thread was quick enough for.
TEST(StepAllocation, OfFollowingOverlappedStepsIsNone) {
  log::set_level(log::Level::off);
  for (const char* model : {"tests/golden/qwen3_next_mtp", "tests/golden/mimo_v2_flash_mtp"}) {
    SCOPED_TRACE(model);
    ServerSettings settings = settings_for(model);
    settings.scheduler.overlap_schedule = "on";
    settings.speculation.algorithm = "NEXTN";
    StepClock clock;
    auto engine = make_engine(settings, &clock);
    ASSERT_NE(engine, nullptr);
    Outbox outbox(65536);
    for (int i = 0; i < 4; ++i) {
      RequestInput input = greedy_input(std::vector<int>(9 + i, 40 + i), 800);
      input.id = Engine::next_request_id();
      input.sampling.ignore_eos = true;
      ASSERT_TRUE(engine->submit(std::move(input)).has_value());
    }
    const auto play = [&](int num_steps) {
      for (int i = 0; i < num_steps; ++i) {
        engine->step(outbox);
        clock.end_step();
        while (outbox.pop()) {
        }
      }
    };
    play(20);
    int64_t allocated = 0;
    bool has_drafted = false;
    for (int i = 0; i < 20 && !has_drafted; ++i) {
      has_drafted = engine->stats().scheduler.num_verified_total > 0;  // so a block follows
      const int64_t before = num_allocations;
      play(20);
      allocated += num_allocations - before;
    }
    EXPECT_EQ(allocated, 0);
    const EngineStats stats = engine->stats();
    EXPECT_GT(stats.steps.num_overlapped, 0u);
    EXPECT_EQ(stats.scheduler.num_running, 4);
  }
  log::set_level(log::Level::info);
}

// Nothing is allocated by idle steps, agreements, exchanges, booking and planning, in any plan; a
// change of plan allocates only its log line. With one request, one of the ranks has no rows.
class StepAllocationOfRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(StepAllocationOfRanks, IsNone) {
  log::set_level(log::Level::off);
  for (const int num_requests : {1, 4}) {
    const std::string_view way = GetParam();
    const bool by_module = way.starts_with("own-module"), overlapped = way.ends_with("overlapped");
    const bool of_text = way.starts_with("text"), drafts = by_module || of_text;
    ServerSettings settings =
        settings_for(by_module ? "tests/golden/qwen3_next_mtp" : "tests/golden/qwen3_moe");
    settings.parallel.ep_size = 2;
    settings.parallel.overlap = drafts || overlapped ? "auto" : way;
    // A gate tries sizes of steps that come for the first time, and each makes a record of plans.
    if (way == "text-gate") settings.parallel.overlap = "none";
    settings.scheduler.overlap_schedule = overlapped ? "on" : "off";
    if (by_module)
      settings.speculation = {.algorithm = way == "own-module-and-text" ? "auto" : "NEXTN",
                              .num_steps = overlapped ? 0 : 2};
    if (of_text) settings.speculation = {.algorithm = "NGRAM", .num_steps = way == "text" ? 2 : 0};
    settings.scheduler.decode_log_interval = 10;
    settings.parallel.dp_routing = "round-robin";
    auto engine = make_engine(settings);
    ASSERT_NE(engine, nullptr);
    Outbox outbox(65536);
    for (int i = 0; i < num_requests; ++i) {
      // None ends while steps are counted, even if one of the ranks alone has drafts.
      RequestInput input = greedy_input(std::vector<int>(9 + i, 40 + i), 700);
      input.id = Engine::next_request_id();
      input.sampling.ignore_eos = true;
      if (of_text) input.sampling.logit_bias = {{TokenId{7}, 50.0F}};  // it repeats itself
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
    // A gate's drafts depend on the machine's speed.
    if (!drafts || settings.speculation.num_steps > 0) {
      EXPECT_EQ(engine->stats().scheduler.num_verified_total > 20, drafts);
    }
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

// The counts of a balance check are copied while steps run.
TEST(ExpertMoverWithoutMemory, BeginsToPlan) {
  ServerSettings settings = settings_for("tests/golden/qwen3_moe");
  settings.parallel.ep_size = 2;
  settings.parallel.enable_eplb = true;
  const auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  ASSERT_TRUE(runners.has_value()) << describe(runners.error());
  Runner& runner = *(*runners)[0];
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 0);
  ExpertMover mover({.model = settings.model, .rebalance = improved_placement}, runner, stats);
  const std::vector<uint64_t> counts(stats.num_counts(), 1);
  for (int i = 0; i < 3; ++i) {
    max_allocated_bytes = 0;
    EXPECT_NO_THROW(mover.plan(counts, 1)) << i;
    max_allocated_bytes = SIZE_MAX;
    const TimePoint deadline = RealClock().now() + std::chrono::seconds(60);
    while (mover.planned() == nullptr && RealClock().now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_NE(mover.planned(), nullptr);
  }
}

// The copy of the prompt for those who read its pages is larger than what may be allocated.
TEST(PrefetchWithoutMemory, CostsThePagesAlone) {
  FakeClock clock;
  TierWorld world(with_pages(false, 128), std::make_shared<MemoryStore>(), clock);
  std::vector<TokenId> prompt = tier_prompt(1, 3000);
  max_allocated_bytes = 8000;
  const bool is_added = world.add(1, std::move(prompt));
  max_allocated_bytes = SIZE_MAX;
  ASSERT_TRUE(is_added);
  ByUnreadReason<uint64_t> want{};
  want[static_cast<size_t>(UnreadReason::no_memory)] = 1;
  EXPECT_EQ(world.tier().stats().not_read_total, want);
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(1).finish, FinishReason::length);
}

// Its chunks that come later would be delayed behind one that never has a turn.
TEST(DelayedWritesWithoutMemory, DelayNothingThatHasNoTurn) {
  const KvShape page = with_pages(false, 4).page;
  PagePool pool = PagePool::create(std::vector<KvShape>{page}, 4).value();
  const BorderStates states(nullptr, nullptr, 1, page.page_tokens);
  PageWriter writer(
      {.files = nullptr, .redis = std::make_shared<MemoryStore>(), .prefills = nullptr},
      TransferBuffers::allocate({.page_bytes = pool.page_bytes()}).value());
  PageCopier copier(pool, states, writer);
  DelayedWrites delayed(copier, static_cast<size_t>(page.page_tokens));
  Request request;
  request.id = RequestId{1};
  request.tokens = tier_prompt(1, 2 * page.page_tokens);
  StoredRequest stored;
  max_allocated_bytes = 0;
  EXPECT_THROW(delayed.delay_pages(request, 2, stored), std::bad_alloc);
  max_allocated_bytes = SIZE_MAX;
  EXPECT_FALSE(stored.delayed.has_value());
  EXPECT_TRUE(delayed.delay_pages(request, 2, stored));
  ASSERT_TRUE(stored.delayed.has_value());
  EXPECT_EQ(stored.delayed->num_pages, 2u);
}

using WindowsInFiles = testing::FolderTest;

// A prompt may be tried at each step, and the keys of its 200 pages take 6,400 bytes.
TEST_F(WindowsInFiles, AreAskedForWithoutHashingThePromptAgain) {
  const KvShape page = with_pages(false, 4).page;
  const std::vector<KvShape> layers = {page};
  PagePool pool = PagePool::create(layers, 4).value();
  PagePool windows = PagePool::create(layers, 4).value();
  const BorderStates states(nullptr, &windows, 64, page.page_tokens);
  CacheTierOptions options;
  options.page_tokens = page.page_tokens;
  options.files = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                              FileStore::calls_for(folder_));
  const auto prefills = std::make_shared<PrefillWatch>();
  ASSERT_TRUE(prefills->begin(RequestId{1}));
  PageWriter writer({.files = options.files, .redis = nullptr, .prefills = prefills},
                    TransferBuffers::allocate({.page_bytes = pool.page_bytes()}).value());
  WriteBehind writes(options, pool, states, writer);
  Request request;
  request.id = RequestId{1};
  request.tokens = tier_prompt(1, 6400);
  request.border_tokens = 128;
  EXPECT_TRUE(writes.lacks_windows(request, 6400));
  max_allocated_bytes = 4096;
  bool lacks = false;
  EXPECT_NO_THROW(lacks = writes.lacks_windows(request, 6400));
  max_allocated_bytes = SIZE_MAX;
  EXPECT_TRUE(lacks);
}

INSTANTIATE_TEST_SUITE_P(Overlap, StepAllocationOfRanks,
                         ::testing::Values("auto", "none", "single-batch", "two-batch",
                                           "own-module", "own-module-and-text", "text", "text-gate",
                                           "overlapped", "own-module-overlapped"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace hocket
