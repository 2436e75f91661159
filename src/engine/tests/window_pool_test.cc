// Runs requests in pools of window layers that are too small for all of them: some wait, prompts
// are cut, requests are retracted and preempted, and windows of the prefix cache are evicted. Each
// answer has the bits that it has alone, and at the end every page is free. Likewise with pools
// that are too small for the states of all prefixes.
#include <functional>

#include "base/log.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;

struct WindowVariant {
  const char* name;
  std::function<void(ServerSettings&)> change;
  bool retracts = false, preempts = false;
};

constexpr int kGrowing = 6;  // requests that are small when they come

// The least window pages that can be planned: enough for two requests that decode.
void few_window_pages(ServerSettings& s) {
  s.model.context_length = 192;
  s.memory.page_size = 16;
  s.memory.max_total_tokens = 2048;
  s.memory.swa_full_tokens_ratio = 1e-6;
}

const WindowVariant kWindowWays[] = {
    {"few window pages", few_window_pages},
    {"short chunks, mixed, overlapped",
     [](auto& s) {
       few_window_pages(s);
       s.scheduler.chunked_prefill_size = 48;
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.overlap_schedule = "on";
     }},
    {"no cache",
     [](auto& s) {
       few_window_pages(s);
       s.scheduler.disable_radix_cache = true;
     }},
    {"few pages of both kinds",
     [](auto& s) {
       few_window_pages(s);
       s.memory.max_total_tokens = 192;
       s.scheduler.schedule_conservativeness = 0.01;
     },
     true},
    {"few pages of both kinds, overlapped",
     [](auto& s) {
       few_window_pages(s);
       s.memory.max_total_tokens = 192;
       s.scheduler.schedule_conservativeness = 0.01;
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"priorities",
     [](auto& s) {
       few_window_pages(s);
       s.scheduler.enable_priority_scheduling = true;
     },
     false, true},
};

// Requests with how many steps are played before each arrives. Later ones are more urgent, and two
// have a beginning in common.
std::vector<std::pair<int, RequestInput>> window_visits() {
  std::vector<std::pair<int, RequestInput>> visits;
  for (int i = 0; i < kGrowing; ++i) {
    RequestInput input = greedy_input(random_tokens(3000 + i, 3 + 5 * i), 110 + i);
    input.sampling.ignore_eos = true;
    if (i % 2 == 1) input.sampling.temperature = 0.9, input.sampling.seed = 5;
    visits.emplace_back(i < 4 ? 0 : 12, std::move(input));
  }
  for (int i = 0; i < 3; ++i) {
    std::vector<int> prompt = random_tokens(4000, 80);
    const std::vector<int> own = random_tokens(4100 + i, 25 + i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    RequestInput input = greedy_input(prompt, 30);
    input.sampling.ignore_eos = true;
    input.priority = 50;
    visits.emplace_back(20 + 9 * i, std::move(input));
  }
  return visits;
}

// Plays the visits; the most requests that ran at a time are put into `max_running`.
std::vector<Answer> play_visits(Engine& engine, int* max_running) {
  auto visits = window_visits();
  Outbox outbox(65536);
  std::map<RequestId, Answer> answers;
  std::vector<RequestId> ids;
  bool worked = true;
  for (int step = 0; step < 20'000 && (worked || ids.size() < visits.size()); ++step) {
    for (size_t next = ids.size(); next < visits.size() && visits[next].first <= step; ++next) {
      visits[next].second.id = Engine::next_request_id();
      ids.push_back(visits[next].second.id);
      EXPECT_TRUE(engine.submit(std::move(visits[next].second)).has_value());
    }
    worked = engine.step(outbox);
    collect(outbox, answers);
    *max_running = std::max(*max_running, engine.stats().scheduler.num_running);
  }
  std::vector<Answer> result;
  for (const RequestId id : ids) result.push_back(std::move(answers[id]));
  return result;
}

class WindowPool : public ::testing::TestWithParam<Form> {};

TEST_P(WindowPool, IsTooSmallAndAnswersAreThoseOfEachRequestAlone) {
  log::set_level(log::Level::error);
  const ServerSettings settings = base_settings(GetParam());
  std::vector<RequestInput> inputs;
  for (auto& [step, input] : window_visits()) inputs.push_back(std::move(input));
  const std::vector<Answer> want = alone(settings, std::move(inputs));
  for (const WindowVariant& way : kWindowWays) {
    SCOPED_TRACE(way.name);
    ServerSettings changed = settings;
    way.change(changed);
    const auto engine = make_engine(changed);
    ASSERT_NE(engine, nullptr);
    int max_running = 0;
    const std::vector<Answer> got = play_visits(*engine, &max_running);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      ASSERT_TRUE(got[i].done);
      EXPECT_EQ(got[i].summary.finish, want[i].summary.finish);
      ASSERT_NO_FATAL_FAILURE(expect_same(got[i], want[i]));
    }
    const SchedulerStats stats = engine->stats().scheduler;
    std::printf("%s: %d window pages of %d, at most %d requests, %llu retracted, %llu preempted\n",
                way.name, stats.num_window_pages, stats.num_pages, max_running,
                static_cast<unsigned long long>(stats.num_retracted_total),
                static_cast<unsigned long long>(stats.num_preempted_total));
    EXPECT_GT(stats.num_window_pages, 0);
    EXPECT_LT(max_running, kGrowing) << "the pool is not too small";
    EXPECT_EQ(stats.num_retracted_total > 0, way.retracts);
    EXPECT_EQ(stats.num_preempted_total > 0, way.preempts);
    // Neither of two pools of equal size is short of pages alone.
    EXPECT_EQ(stats.num_evicted_window_pages_total > 0,
              !changed.scheduler.disable_radix_cache && stats.num_window_pages < stats.num_pages);
    EXPECT_EQ(stats.num_private_pages, 0);
    EXPECT_EQ(stats.num_free_window_pages + stats.num_cached_window_pages, stats.num_window_pages);
    EXPECT_TRUE(engine->flush_cache());
    Outbox outbox(16);
    engine->step(outbox);
    const SchedulerStats flushed = engine->stats().scheduler;
    EXPECT_EQ(flushed.num_free_window_pages, flushed.num_window_pages);
    EXPECT_EQ(flushed.num_free_pages, flushed.num_pages);
  }
  log::set_level(log::Level::info);
}

INSTANTIATE_TEST_SUITE_P(Forms, WindowPool,
                         ::testing::Values(kMimo, kMimoInt8Kv, kGptOss, kStep3p7, kGemma4, kLlama4),
                         [](const auto& param) { return std::string(param.param.name); });

// Returns an engine with hardly more states than two or three running requests need, or null.
std::unique_ptr<Engine> engine_with_few_states(ServerSettings settings) {
  settings.memory.page_size = 16;
  settings.memory.max_total_tokens = 4096;
  double& ratio = settings.memory.mamba_full_memory_ratio;
  for (ratio = 1e-9; ratio < 1; ratio *= 1.5) {
    if (!Engine::create({.settings = settings})) continue;
    ratio *= 3;
    return make_engine(settings);
  }
  return nullptr;
}

// Three turns of eight conversations. Each turn is asked for twice, so that some states are found.
std::vector<std::vector<RequestInput>> turns_of_conversations() {
  constexpr int kTurns = 3, kConversations = 8;
  std::vector<std::vector<RequestInput>> turns;
  for (int turn = 0; turn < kTurns; ++turn)
    for (int i = 0; i < 2 * kConversations; ++i)
      turns.push_back({greedy_input(random_tokens(5000 + i / 2, 75 + 50 * turn + i / 2), 12)});
  return turns;
}

class StatePool : public ::testing::TestWithParam<Form> {};

TEST_P(StatePool, EvictsStatesAndAnswersAreThoseOfEachRequestAlone) {
  log::set_level(log::Level::error);
  for (const char* overlap : {"off", "on"}) {
    SCOPED_TRACE(overlap);
    ServerSettings settings = base_settings(GetParam());
    settings.scheduler.overlap_schedule = overlap;
    const auto engine = engine_with_few_states(settings);
    ASSERT_NE(engine, nullptr);
    std::vector<Answer> got;
    std::vector<RequestInput> inputs;
    for (std::vector<RequestInput>& turn : turns_of_conversations()) {
      inputs.push_back(turn[0]);
      got.push_back(std::move(run_all(*engine, std::move(turn))[0]));
    }
    expect_same(got, alone(settings, std::move(inputs)));
    const SchedulerStats stats = engine->stats().scheduler;
    int cached_tokens = 0;
    for (const Answer& answer : got) cached_tokens += answer.summary.cached_tokens;
    std::printf("%d states, %llu evicted, %d tokens cached\n", stats.num_states,
                static_cast<unsigned long long>(stats.num_evicted_states_total), cached_tokens);
    EXPECT_GT(stats.num_evicted_states_total, 0u);
    EXPECT_EQ(stats.num_evicted_pages_total, 0u);
    EXPECT_GT(cached_tokens, 0);
    EXPECT_EQ(stats.num_free_states + stats.num_cached_states, stats.num_states);
  }
  log::set_level(log::Level::info);
}

INSTANTIATE_TEST_SUITE_P(Forms, StatePool, ::testing::Values(kDelta, kDeltaInt8Kv, kKimiLinear),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
