// Tests answers that follow grammars, through the whole engine: they are valid, and the same in
// every schedule.
#include <functional>

#include "base/log.h"
#include "engine/grammar/random_schemas_testing.h"
#include "engine/grammar/testing.h"

namespace hocket {
namespace {

using namespace testing;

// Two of three requests follow a grammar; with all kinds of sampling and common prefixes.
std::vector<RequestInput> mixed_traffic() {
  RandomSchemas schemas(3);
  std::vector<RequestInput> inputs;
  // These are small when they come, and any two of them exceed a small pool when they have grown;
  // there are enough that two meet, whenever grammars are ready.
  for (int i = 0; i < 5; ++i)
    inputs.push_back(
        grammar_input(random_tokens(2000 + i, 3 + i), GrammarKind::regex, "[a-z ]{600}", 120));
  for (int i = 0; i < 18; ++i) {
    std::vector<int> prompt = i % 2 ? random_tokens(1, 40) : std::vector<int>();
    for (const int token : random_tokens(100 + i, 3 + 7 * (i % 5))) prompt.push_back(token);
    RequestInput input = greedy_input(prompt, 40);
    if (i % 3 == 0)
      input = grammar_input(prompt, GrammarKind::json_schema, schemas.next().dump(), 70);
    if (i % 3 == 1)
      input =
          grammar_input(prompt, i % 2 ? GrammarKind::regex : GrammarKind::lark,
                        i % 2 ? "[a-z]{3,9} (one|two) [0-9]+" : "start: \"(\" start? \")\"", 30);
    SamplingParams& p = input.sampling;
    p.ignore_eos = i % 4 == 0;
    if (i % 2) p.temperature = 0.9, p.seed = static_cast<uint64_t>(i);
    if (i % 5 == 0) p.frequency_penalty = 0.5, p.top_p = 0.9;
    if (i % 7 == 0) p.min_new_tokens = 12;
    p.num_top_logprobs = i % 4 - 1;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<Answer> mixed_traffic_alone(const GrammarModel& model, ServerSettings settings) {
  settings.scheduler.disable_radix_cache = true;
  return run_each_alone(*model.engine(settings), mixed_traffic());
}

void expect_all_same(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(got[i].summary.finish, want[i].summary.finish) << got[i].summary.error.message;
    EXPECT_EQ(got[i].summary.matched_stop, want[i].summary.matched_stop);
    expect_same(got[i], want[i]);
  }
}

const ScheduleVariant kGrammarWays[] = {
    {"together", [](auto&) {}},
    {"overlapped", [](auto& s) { s.scheduler.overlap_schedule = "on"; }, true},
    {"mixed, short chunks, overlapped",
     [](auto& s) {
       s.scheduler.chunked_prefill_size = 32;
       s.scheduler.prefill_policy = "mixed";
       s.scheduler.overlap_schedule = "on";
     },
     true},
    {"retractions",
     [](auto& s) {
       s.memory.max_total_tokens = 192;
       s.memory.page_size = 16;
       s.model.context_length = 192;
       s.scheduler.schedule_conservativeness = 0.01;
     },
     false, true},
    {"retractions, overlapped, two threads",
     [](auto& s) {
       s.memory.max_total_tokens = 192;
       s.memory.page_size = 16;
       s.model.context_length = 192;
       s.scheduler.schedule_conservativeness = 0.01;
       s.scheduler.overlap_schedule = "on";
       s.compute.num_threads = 2;
     },
     true, true},
};

TEST(GrammarAnswers, AreTheSameHoweverTheyAreScheduled) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  const ServerSettings settings = base_settings(kBundled);
  const std::vector<Answer> want = mixed_traffic_alone(model, settings);
  for (const ScheduleVariant& way : kGrammarWays) {
    SCOPED_TRACE(way.name);
    ServerSettings changed = settings;
    way.change(changed);
    const auto engine = model.engine(changed);
    ASSERT_NE(engine, nullptr);
    expect_all_same(run_patiently(*engine, mixed_traffic()), want);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.steps.num_overlapped > 0, way.overlaps);
    EXPECT_EQ(stats.scheduler.num_retracted_total > 0, way.retracts);
    EXPECT_EQ(stats.scheduler.num_private_pages, 0);
    EXPECT_GT(stats.grammars->num_masks_ahead + stats.grammars->num_masks_late, 100u);
    EXPECT_GT(stats.grammars->num_cache_hits, 0u);
  }
  log::set_level(log::Level::info);
}

TEST(GrammarAnswers, AreTheSameOnAnyNumberOfRanks) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  std::vector<Answer> want;
  const std::pair<int, const char*> cases[] = {
      {1, "off"}, {2, "off"}, {4, "off"}, {2, "on"}, {4, "on"}};
  for (const auto& [num_ranks, overlap_schedule] : cases) {
    SCOPED_TRACE(fmt::format("{} ranks, overlapped: {}", num_ranks, overlap_schedule));
    ServerSettings settings = settings_of(kBundled, num_ranks);
    settings.model.context_length = 256;
    settings.scheduler.overlap_schedule = overlap_schedule;
    Service service(model.options(settings));
    ASSERT_TRUE(service.works());
    std::vector<RequestId> ids;
    for (RequestInput& input : mixed_traffic()) ids.push_back(*service.submit(std::move(input)));
    ASSERT_TRUE(service.read_all());
    std::vector<Answer> got;
    for (const RequestId id : ids) got.push_back(service.answer(id));
    if (want.empty())
      want = std::move(got);
    else
      expect_all_same(got, want);
  }
  log::set_level(log::Level::info);
}

TEST(GrammarAnswers, OfAThousandRandomSchemasAreAllValid) {
  log::set_level(log::Level::error);
  constexpr int kNumSchemas = 1000;
  const GrammarModel model;
  ServerSettings settings = settings_for(kBundledFolder);
  settings.memory.max_total_tokens = 32768;
  const auto engine = model.engine(settings);
  ASSERT_NE(engine, nullptr);
  RandomSchemas schemas(1);
  std::vector<SchemaJson> asked;
  std::vector<RequestInput> inputs;
  for (int i = 0; i < kNumSchemas; ++i) {
    asked.push_back(schemas.next());
    // A model without training for this likes to write blanks: one schema of eight allows them.
    if (i % 8 != 0) asked.back()["x-guidance"] = {{"whitespace_flexible", false}};
    inputs.push_back(
        grammar_input(random_tokens(i, 8), GrammarKind::json_schema, asked.back().dump(), 1000));
    inputs.back().sampling.temperature = i % 4 == 0 ? 0 : 1.0;
    inputs.back().sampling.seed = static_cast<uint64_t>(i);
  }
  const std::vector<Answer> answers = run_patiently(*engine, std::move(inputs));
  int64_t num_tokens = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::string text = model.text(answers[i]);
    ASSERT_EQ(answers[i].summary.finish, FinishReason::stop) << asked[i].dump() << "\n"
                                                             << text << "\n"
                                                             << answers[i].summary.error.message;
    const auto value = SchemaJson::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << text;
    ASSERT_TRUE(SchemaCheck(asked[i]).valid(value)) << asked[i].dump() << "\n" << text;
    num_tokens += std::ssize(answers[i].tokens);
  }
  EXPECT_GT(num_tokens, 5'000);
  const EngineStats stats = engine->stats();
  RecordProperty("tokens", std::to_string(num_tokens));
  RecordProperty("compile_ms_mean",
                 std::to_string(1000 * stats.grammars->compile_seconds_total / kNumSchemas));
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
