// Tests that tokens which a grammar forces are taken without a step of their own, and equal those
// that sampling would draw.
#include <functional>
#include <string_view>

#include "base/log.h"
#include "engine/grammar/testing.h"

namespace hocket {
namespace {

using namespace testing;

constexpr std::string_view kSchema =
    R"({"type":"object","x-guidance":{"whitespace_flexible":false},"additionalProperties":false,
        "properties":{"temperature_in_degrees":{"type":"integer","minimum":0,"maximum":99},
                      "description_of_the_weather":{"enum":["sunny weather","rain and thunder"]},
                      "is_certain":{"type":"boolean"}},
        "required":["temperature_in_degrees","description_of_the_weather","is_certain"]})";
constexpr std::string_view kRegex =
    "The quick brown fox jumps over (the lazy dog|a wall of stones) [0-9]{2,4} times, and then "
    "it goes home\\.";

// The limit of reasoning ends its first part if that has not ended before.
constexpr std::string_view kThoughts =
    "[a-z ]{0,60}\\. So it is done: (yes|no), and nothing else is to be said\\.";

enum class Forcing : uint8_t { allowed, prevented };

// Makes two answers of each kind, with everything that ends an answer or changes the draw. Asking
// for log-probabilities prevents forcing, because then each token needs logits.
std::vector<RequestInput> forced_traffic(const GrammarModel& model, Forcing forcing) {
  std::vector<RequestInput> inputs;
  const auto end_ids = *model.tokenizer().encode(". So", {});
  const auto text_ids = *model.tokenizer().encode("fox jumps over", {});
  for (int i = 0; i < 24; ++i) {
    const bool json = i % 3 == 0;
    const int prompt = i % 12;  // each twice
    // The limits lie between the first forced tokens and beyond the end.
    const int max_new = i % 4 == 1 ? 1 + 3 * i : 120;
    RequestInput input = grammar_input(random_tokens(300 + prompt, 3 + 7 * (prompt % 5)),
                                       json ? GrammarKind::json_schema : GrammarKind::regex,
                                       std::string(json ? kSchema : kRegex), max_new);
    if (i % 6 == 4) {
      input.sampling.grammar = std::make_shared<const GrammarSpec>(
          GrammarSpec{.kind = GrammarKind::regex, .text = std::string(kThoughts)});
      input.sampling.reasoning_limit = std::make_shared<const ReasoningLimit>(
          ReasoningLimit{.tokens = 6, .open = {}, .ends = {end_ids}});
    }
    if (i % 6 == 5) input = greedy_input(random_tokens(400 + i, 20), 60);
    SamplingParams& p = input.sampling;
    if (i % 2) p.temperature = 0.9, p.seed = static_cast<uint64_t>(i);
    if (i % 5 == 0) p.frequency_penalty = 0.7, p.presence_penalty = 0.2, p.top_p = 0.9;
    if (i % 5 == 1) p.repetition_penalty = 1.4;
    if (i % 7 == 0) p.min_new_tokens = 15;
    if (i % 8 == 2) p.stop_ids = {text_ids[static_cast<size_t>(i / 8) % text_ids.size()]};
    if (i % 16 == 2) p.min_new_tokens = 9;
    if (i % 9 == 4) p.prompt_logprobs_from = 0;
    p.ignore_eos = i % 4 == 3;
    p.num_top_logprobs = forcing == Forcing::prevented ? 0 : -1;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<Answer> unforced_alone(const GrammarModel& model, ServerSettings settings) {
  settings.scheduler.disable_radix_cache = true;
  const auto engine = model.engine(settings);
  auto answers = run_each_alone(*engine, forced_traffic(model, Forcing::prevented));
  EXPECT_EQ(engine->stats().scheduler.forced_tokens_total, 0u);
  return answers;
}

void expect_same_tokens(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(got[i].summary.finish, want[i].summary.finish) << got[i].summary.error.message;
    EXPECT_EQ(got[i].summary.matched_stop, want[i].summary.matched_stop);
    EXPECT_EQ(got[i].summary.generated_tokens, std::ssize(got[i].tokens));
    EXPECT_EQ(got[i].tokens, want[i].tokens);
    EXPECT_EQ(got[i].prompt_logprobs.size(), want[i].prompt_logprobs.size());
  }
}

struct ForcingVariant {
  const char* name;
  std::function<void(ServerSettings&)> change;
  bool forces = true, retracts = false;
};

void make_memory_short(ServerSettings& s) {
  s.memory.max_total_tokens = 176;
  s.memory.page_size = 16;
  s.model.context_length = 176;
  s.scheduler.schedule_conservativeness = 0.01;
}

const ForcingVariant kForcingWays[] = {
    {"prefill first", [](auto& s) { s.scheduler.prefill_policy = "prefill-first"; }},
    {"mixed, short chunks",
     [](auto& s) {
       s.scheduler.chunked_prefill_size = 32;
       s.scheduler.prefill_policy = "mixed";
     }},
    {"latency",
     [](auto& s) {
       s.scheduler.prefill_policy = "latency";
       s.scheduler.chunked_prefill_size = 32;
     }},
    {"rows are cut", [](auto& s) { s.memory.max_running_requests = 6; }},
    {"nobody has room", [](auto& s) { s.memory.max_running_requests = 1; }},
    {"retractions", make_memory_short, true, true},
    {"retractions, mixed, pages of 4, two threads",
     [](auto& s) {
       make_memory_short(s);
       s.memory.page_size = 4;
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.chunked_prefill_size = 16;
       s.compute.num_threads = 2;
     },
     true, true},
    {"drafts", [](auto& s) { s.speculation = {.algorithm = "NGRAM", .num_steps = 4}; }},
    {"drafts, retractions",
     [](auto& s) {
       make_memory_short(s);
       s.speculation = {.algorithm = "NGRAM", .num_steps = 2};
     },
     true, true},
    {"overlapped", [](auto& s) { s.scheduler.overlap_schedule = "on"; }, false},
};

TEST(ForcedTokens, AreThoseThatSamplingDraws) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  const std::vector<Answer> want = unforced_alone(model, base_settings(kBundled));
  for (const ForcingVariant& way : kForcingWays) {
    SCOPED_TRACE(way.name);
    ServerSettings settings = base_settings(kBundled);
    way.change(settings);
    const auto engine = model.engine(settings);
    ASSERT_NE(engine, nullptr);
    // The first round runs while grammars compile, the second when all are cached, so that requests
    // run side by side on a busy machine too. Some rounds of a very busy one need no retraction.
    const auto misses = [&] {
      return way.retracts && engine->stats().scheduler.num_retracted_total == 0;
    };
    for (int round = 0; round < 2 || (round < 10 && misses()); ++round)
      expect_same_tokens(run_patiently(*engine, forced_traffic(model, Forcing::allowed)), want);
    const SchedulerStats stats = engine->stats().scheduler;
    EXPECT_EQ(stats.forced_tokens_total > 150, way.forces) << stats.forced_tokens_total;
    EXPECT_EQ(stats.num_retracted_total > 0, way.retracts);
    EXPECT_EQ(stats.num_private_pages, 0);
  }
  log::set_level(log::Level::info);
}

TEST(ForcedTokens, AreTheSameOnAnyNumberOfRanks) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  const std::vector<Answer> want = unforced_alone(model, settings_of(kBundled, 1));
  for (const int num_ranks : {1, 2, 4})
    for (const char* overlap : {"none", "two-batch"}) {
      if (num_ranks == 1 && std::string_view(overlap) != "none") continue;
      SCOPED_TRACE(std::to_string(num_ranks) + " " + overlap);
      ServerSettings settings = settings_of(kBundled, num_ranks);
      settings.model.context_length = 256;
      settings.parallel.overlap = overlap;
      settings.memory.max_running_requests = 8;
      if (std::string_view(overlap) == "two-batch")
        settings.speculation = {.algorithm = "NGRAM", .num_steps = 3};
      Service service(model.options(settings));
      ASSERT_TRUE(service.works());
      std::vector<RequestId> ids;
      for (RequestInput& input : forced_traffic(model, Forcing::allowed))
        ids.push_back(*service.submit(std::move(input)));
      ASSERT_TRUE(service.read_all());
      std::vector<Answer> got;
      for (const RequestId id : ids) got.push_back(service.answer(id));
      expect_same_tokens(got, want);
      EXPECT_GT(service.engine().stats().scheduler.forced_tokens_total, 150u);
    }
  log::set_level(log::Level::info);
}

// Rows of drafts follow the grammar one by one, and have log-probabilities.
TEST(ForcedTokens, AreTheSameAsDrafts) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  const std::vector<Answer> want = unforced_alone(model, base_settings(kBundled));
  ServerSettings settings = base_settings(kBundled);
  settings.speculation = {.algorithm = "NGRAM", .num_steps = 5};
  const auto engine = model.engine(settings);
  ASSERT_NE(engine, nullptr);
  const auto got = run_patiently(*engine, forced_traffic(model, Forcing::prevented));
  ASSERT_NO_FATAL_FAILURE(expect_same_tokens(got, want));
  for (size_t i = 0; i < want.size(); ++i) expect_same(got[i], want[i]);
  const SchedulerStats stats = engine->stats().scheduler;
  EXPECT_GT(stats.num_verified_total, 20u);
  EXPECT_GT(stats.accepted_total[0], 5u);
  log::set_level(log::Level::info);
}

TEST(ForcedTokens, SaveSteps) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  uint64_t steps[2] = {};
  std::vector<int> tokens[2];
  for (const Forcing forcing : {Forcing::allowed, Forcing::prevented}) {
    const auto engine = model.engine(base_settings(kBundled));
    std::vector<RequestInput> one;
    one.push_back(grammar_input({1, 2, 3}, GrammarKind::json_schema, std::string(kSchema)));
    one[0].sampling.num_top_logprobs = forcing == Forcing::prevented ? 0 : -1;
    const Answer got = std::move(run_patiently(*engine, std::move(one))[0]);
    const EngineStats stats = engine->stats();
    const auto at = static_cast<size_t>(forcing);
    steps[at] = stats.steps.num_decode + stats.steps.num_prefill + stats.steps.num_mixed;
    tokens[at] = got.tokens;
    // Every token had its step, except those that were forced.
    EXPECT_EQ(steps[at] + stats.scheduler.forced_tokens_total, got.tokens.size());
  }
  EXPECT_EQ(tokens[0], tokens[1]);
  EXPECT_LT(2 * steps[0], steps[1]);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
