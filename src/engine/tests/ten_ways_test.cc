// Runs random traffic through the whole engine, scheduled in ten ways: with any policy, chunks,
// retractions and overlapping steps, with drafts and without, a request's answer has the bits that
// it has alone.
#include <functional>
#include <random>

#include "base/log.h"
#include "engine/tests/forms.h"
#include "engine/tests/oracle.h"
#include "policy/scheduler/draft_figures.h"

namespace hocket {
namespace {

using namespace testing;

constexpr int kNumRequests = 16, kNumGrowing = 2;

// A request with its arrival, and the moment when its client leaves.
struct Visit {
  int step = 0;
  RequestInput input;
  int leaves_after = -1;  // tokens; -1: stays to the end
};

// Makes arrivals in bunches, common prefixes (to the middle of a page), and every kind of sampling.
std::vector<Visit> random_visits(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<uint32_t>(to - from + 1));
  };
  const std::vector<int> shared[] = {{}, random_tokens(1, 70), random_tokens(2, 45)};
  std::vector<Visit> visits;
  // These are small when they come, and together too large for a small pool when they have grown.
  for (int i = 0; i < kNumGrowing; ++i) {
    RequestInput input = greedy_input(random_tokens(2000 + i, 3 + i), 120);
    input.sampling.ignore_eos = true;
    input.sampling.frequency_penalty = 0.1;
    visits.push_back({.step = 0, .input = std::move(input), .leaves_after = -1});
  }
  // Twins compute the same pages at the same time unless the scheduler prevents it.
  for (int i = 0; i < 2; ++i)
    visits.push_back(
        {.step = 0, .input = greedy_input(random_tokens(3, 100), 12), .leaves_after = -1});
  // This one repeats itself in every model, so that its own text drafts it.
  RequestInput repeats = greedy_input(random_tokens(4, 9), 60);
  repeats.sampling.ignore_eos = true;
  repeats.sampling.logit_bias = {{TokenId{7}, 50.0F}};
  visits.push_back({.step = 0, .input = std::move(repeats), .leaves_after = -1});
  int step = 20;
  for (int i = 0; i < kNumRequests; ++i) {
    std::vector<int> prompt = shared[pick(0, 2)];
    const int length = std::max(static_cast<int>(prompt.size()) + 1, pick(1, i % 2 ? 130 : 30));
    const std::vector<int> own = random_tokens(1000 + i, length);
    prompt.insert(prompt.end(), own.begin() + std::ssize(prompt), own.end());
    Visit visit{.step = step, .input = greedy_input(prompt, pick(1, 60)), .leaves_after = -1};
    SamplingParams& p = visit.input.sampling;
    p.ignore_eos = pick(0, 1) == 0;
    if (pick(0, 2) > 0) p.temperature = 0.8, p.seed = random();
    if (pick(0, 2) == 0) p.frequency_penalty = 0.5, p.repetition_penalty = 1.2;
    if (pick(0, 2) == 0) p.presence_penalty = -0.4;
    if (pick(0, 2) == 0) p.top_p = 0.9, p.top_k = 30;
    if (pick(0, 2) == 0) p.logit_bias = {{TokenId{3}, 2.0F}, {TokenId{9}, -5.0F}};
    if (pick(0, 1) == 0) p.num_top_logprobs = pick(0, 5);
    if (pick(0, 3) == 0) p.prompt_logprobs_from = pick(0, 3);
    if (pick(0, 2) == 0) {  // ends early, but not at once
      for (int token = i % 7; token < kVocabulary; token += 7) p.stop_ids.push_back(TokenId{token});
      p.min_new_tokens = std::min(p.max_new_tokens, pick(0, 12));
    }
    visit.input.client = static_cast<uint64_t>(i % 3);
    visit.input.routing_key = static_cast<uint64_t>(i % 2);
    visit.input.priority = 20 * (i % 2);
    if (pick(0, 4) == 0) visit.leaves_after = pick(0, 6);
    visits.push_back(std::move(visit));
    if (pick(0, 2) == 0) step += pick(1, 9);
  }
  return visits;
}

// Makes a pool in which requests are admitted while small, and do not fit when they have grown.
void small_pool(ServerSettings& s) {
  s.model.context_length = 192;
  s.memory.max_total_tokens = 192;
  s.memory.page_size = 16;
  s.scheduler.schedule_conservativeness = 0.01;
}

const ScheduleVariant kTenWays[] = {
    {"fcfs", [](auto& s) { s.scheduler.chunked_prefill_size = 64; }},
    {"fcfs, prefixes computed twice at a time, overlapped",
     [](auto& s) {
       s.scheduler.in_batch_prefix_check = -1;
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"lpm, short chunks, mixed, overlapped",
     [](auto& s) {
       s.scheduler.schedule_policy = "lpm";
       s.scheduler.chunked_prefill_size = 32;
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"fair, three in chunks",
     [](auto& s) {
       s.scheduler.schedule_policy = "fair";
       s.scheduler.chunked_prefill_size = 96;
       s.scheduler.max_chunked_requests = 3;
     }},
    {"random, three at a time, overlapped",
     [](auto& s) {
       s.scheduler.schedule_policy = "random";
       s.memory.max_running_requests = 3;
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"shortest first, latency, overlapped",
     [](auto& s) {
       s.scheduler.schedule_policy = "shortest-prefill-first";
       s.scheduler.chunked_prefill_size = 128;
       s.scheduler.prefill_policy = "latency";
       s.scheduler.itl_slo_ms = 2;
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"lof, mixed, two in chunks, no cache, overlapped",
     [](auto& s) {
       s.scheduler.schedule_policy = "lof";
       s.scheduler.chunked_prefill_size = 64;
       s.scheduler.max_chunked_requests = 2;
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.disable_radix_cache = true;
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"retractions", small_pool, false, true},
    {"retractions, mixed, overlapped",
     [](auto& s) {
       small_pool(s);
       s.scheduler.chunked_prefill_size = 48;
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.overlap_schedule = "on";
     },
     true, true},
    {"priorities, dfs-weight, two threads, overlapped",
     [](auto& s) {
       s.scheduler.schedule_policy = "dfs-weight";
       s.scheduler.enable_priority_scheduling = true;
       s.memory.max_running_requests = 2;
       s.compute.num_threads = 2;
       s.scheduler.overlap_schedule = "on";
     },
     true},
};
static_assert(std::size(kTenWays) == 10);

std::vector<Answer> play(Engine& engine, std::vector<Visit> visits) {
  Outbox outbox(65536);
  std::map<RequestId, Answer> answers;
  std::vector<RequestId> ids;
  size_t next = 0;
  for (int step = 0; step < 10'000; ++step) {
    for (; next < visits.size() && visits[next].step <= step; ++next) {
      visits[next].input.id = Engine::next_request_id();
      ids.push_back(visits[next].input.id);
      EXPECT_TRUE(engine.submit(visits[next].input).has_value());
    }
    const bool worked = engine.step(outbox);
    collect(outbox, answers);
    for (size_t i = 0; i < next; ++i)
      if (visits[i].leaves_after >= 0 && !answers[ids[i]].done &&
          std::ssize(answers[ids[i]].tokens) >= visits[i].leaves_after)
        engine.abort(ids[i]);
    if (!worked && next == visits.size()) break;
  }
  std::vector<Answer> result;
  for (const RequestId id : ids) result.push_back(std::move(answers[id]));
  return result;
}

// Cuts an answer to the part that its client saw before it left.
Answer cut(Answer whole, const Answer& seen) {
  whole.tokens.resize(std::min(whole.tokens.size(), seen.tokens.size()));
  whole.logprobs.resize(std::min(whole.logprobs.size(), seen.logprobs.size()));
  whole.top.resize(whole.logprobs.size());
  if (seen.tokens.empty()) whole.prompt_logprobs.clear();
  return whole;
}

class TenWays : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    settings_ = base_settings(GetParam());
    std::vector<RequestInput> inputs;
    for (const Visit& visit : visits_) inputs.push_back(visit.input);
    want_ = alone(settings_, std::move(inputs));
  }
  void TearDown() override { log::set_level(log::Level::info); }

  // Plays the visits with this way's settings and compares all answers.
  std::unique_ptr<Engine> expect_same_in(Engine::Options options,
                                         const ScheduleVariant& way) const {
    way.change(options.settings);
    auto made = Engine::create(std::move(options));
    if (!made) return nullptr;
    std::unique_ptr<Engine> engine = *std::move(made);
    const std::vector<Answer> got = play(*engine, visits_);
    int num_aborted = 0;
    for (size_t i = 0; i < want_.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      EXPECT_TRUE(got[i].done);
      const RequestSummary& summary = got[i].summary;
      const bool aborted = summary.finish == FinishReason::abort;
      num_aborted += aborted;
      EXPECT_TRUE(!aborted || visits_[i].leaves_after >= 0);
      EXPECT_TRUE(aborted || summary.finish == want_[i].summary.finish);
      EXPECT_EQ(summary.generated_tokens, std::ssize(got[i].tokens));
      expect_same(got[i], aborted ? cut(want_[i], got[i]) : want_[i]);
      if (HasFailure()) return nullptr;
    }
    EXPECT_GT(num_aborted, 0);
    EXPECT_EQ(engine->stats().scheduler.num_private_pages, 0);
    return engine;
  }

  const std::vector<Visit> visits_ = random_visits(7);
  ServerSettings settings_;
  std::vector<Answer> want_;
};

TEST_P(TenWays, GiveTheAnswersOfEachRequestAlone) {
  for (const ScheduleVariant& way : kTenWays) {
    SCOPED_TRACE(way.name);
    const auto engine = expect_same_in({.settings = settings_}, way);
    ASSERT_NE(engine, nullptr);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.steps.num_overlapped > 0, way.overlaps);
    EXPECT_EQ(stats.scheduler.num_retracted_total > 0, way.retracts);
  }
}

// One to four drafts of each answer in a step, in turn of its own text and of a drafter that knows
// what comes.
TEST_P(TenWays, GiveThemWithDrafts) {
  std::vector<RequestInput> inputs;
  for (const Visit& visit : visits_) inputs.push_back(visit.input);
  const Texts texts = texts_of(inputs, want_);
  for (int i = 0; const ScheduleVariant& way : kTenWays) {
    SCOPED_TRACE(way.name);
    const bool knows = i % 2 == 1;
    Engine::Options options{.settings = settings_};
    if (knows) options = with_oracle(settings_, texts, {});
    options.settings.speculation = {.algorithm = "NGRAM", .num_steps = 1 + (i++ / 2 + 3) % 4};
    const auto engine = expect_same_in(std::move(options), way);
    ASSERT_NE(engine, nullptr);
    const SchedulerStats stats = engine->stats().scheduler;
    EXPECT_GT(num_held_of(stats), 20u);
    EXPECT_TRUE(way.retracts || stats.num_retracted_total == 0);  // drafts end answers sooner
  }
}

std::string form_name(const ::testing::TestParamInfo<Form>& form) {
  return form.param.name;
}
INSTANTIATE_TEST_SUITE_P(Forms, TenWays, ::testing::ValuesIn(kForms), form_name);

// The forms whose files hold a module for multi-token prediction.
const Form kModuleForms[] = {kBundled,
                             {"deepseek", kGolden / "deepseek_v3_mtp"},
                             {"glm4", kGolden / "glm4_moe_mtp"},
                             {"qwen3_next", kGolden / "qwen3_next_mtp"},
                             {"qwen3_5", kGolden / "qwen3_5_moe_mtp"},
                             {"mimo", kGolden / "mimo_v2_flash_mtp"}};

class TenWaysByModule : public TenWays {};

// The same with drafts of the model's own module, in turn alone and beside those of the text.
TEST_P(TenWaysByModule, GiveThem) {
  for (int i = 0; const ScheduleVariant& way : kTenWays) {
    SCOPED_TRACE(way.name);
    Engine::Options options{.settings = settings_};
    const int num_drafts = 1 + (i / 2 + 3) % 4;
    options.settings.speculation = {.algorithm = i % 2 == 0 ? "NEXTN" : "auto",
                                    .num_steps = num_drafts};
    ++i;
    const auto engine = expect_same_in(std::move(options), way);
    ASSERT_NE(engine, nullptr);
    const ModelConfig& model = engine->info().model;
    EXPECT_EQ(model.num_mtp_loaded,
              model.local_mtp ? std::min(num_drafts, model.num_mtp_layers) : 1);
    EXPECT_GT(engine->stats().scheduler.num_verified_total, 20u);
    EXPECT_TRUE(way.retracts || engine->stats().scheduler.num_retracted_total == 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TenWaysByModule, ::testing::ValuesIn(kModuleForms), form_name);

}  // namespace
}  // namespace hocket
