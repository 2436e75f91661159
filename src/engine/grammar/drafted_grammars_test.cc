// Tests drafts of answers that follow grammars: no bit changes, and no row is spent on drafts that
// the grammar forbids.
#include <string_view>

#include "base/log.h"
#include "engine/grammar/testing.h"
#include "engine/tests/oracle.h"
#include "policy/scheduler/draft_figures.h"

namespace hocket {
namespace {

using namespace testing;

constexpr std::string_view kWords = "[a-z ]{60}";
constexpr std::string_view kJson =
    R"({"type":"object","x-guidance":{"whitespace_flexible":false},"additionalProperties":false,
        "properties":{"name":{"type":"string","maxLength":12},"is_certain":{"type":"boolean"},
                      "sizes":{"type":"array","items":{"type":"integer"},"maxItems":4}},
        "required":["name","is_certain","sizes"]})";

// Three choices of each of eight requests.
std::vector<RequestInput> choices() {
  std::vector<RequestInput> inputs;
  for (int i = 0; i < 24; ++i) {
    const int request = i / 3;
    RequestInput input = grammar_input(random_tokens(700 + request, 4 + 9 * (request % 4)),
                                       request % 2 ? GrammarKind::json_schema : GrammarKind::regex,
                                       std::string(request % 2 ? kJson : kWords), 70);
    if (request == 6) input = greedy_input(random_tokens(720, 30), 50);
    SamplingParams& p = input.sampling;
    p.temperature = 0.9;
    p.seed = static_cast<uint64_t>(1000 * request + i % 3);
    if (request % 3 == 0) p.frequency_penalty = 0.4, p.top_p = 0.95;
    if (request % 3 == 1) p.repetition_penalty = 1.3;
    p.num_top_logprobs = request % 4 == 1 ? -1 : 1;
    input.index_in_request = i % 3;
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// Sets an end at some token of each answer: by length, by a stop token, and by one that a minimum
// length puts off.
void end_in_the_middle(std::vector<RequestInput>& inputs, const std::vector<Answer>& answers) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto length = answers[i].tokens.size();
    ASSERT_GT(length, 0u);
    const auto place = std::min(length - 1, 5 + 7 * (i % 5));
    SamplingParams& p = inputs[i].sampling;
    if (i % 4 == 0) p.max_new_tokens = static_cast<int>(place) + 1;
    if (i % 4 == 1) p.stop_ids = {TokenId{answers[i].tokens[place]}};
    if (i % 4 == 2) {
      p.stop_ids = {TokenId{answers[i].tokens[place / 2]}};
      p.min_new_tokens = static_cast<int>(place);
    }
  }
}

TEST(DraftedGrammars, EndInTheMiddleOfARunAsWithoutDrafts) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  ServerSettings settings = base_settings(kBundled);
  settings.scheduler.disable_radix_cache = true;
  std::vector<RequestInput> inputs = choices();
  ASSERT_NO_FATAL_FAILURE(
      end_in_the_middle(inputs, run_each_alone(*model.engine(settings), choices())));
  const std::vector<Answer> want = run_each_alone(*model.engine(settings), inputs);
  const Texts texts = texts_of(inputs, want);
  for (const int num_drafts : {1, 3, 8}) {
    SCOPED_TRACE(num_drafts);
    ServerSettings changed = base_settings(kBundled);
    changed.speculation = {.algorithm = "NGRAM", .num_steps = num_drafts};
    Engine::Options options = model.options(changed);
    options.drafter = with_oracle(changed, texts, {.right_of_ten = 8}).drafter;
    auto engine = Engine::create(std::move(options));
    ASSERT_TRUE(engine.has_value()) << describe(engine.error());
    expect_equal_answers(run_patiently(**engine, inputs), want);
    const SchedulerStats stats = (*engine)->stats().scheduler;
    EXPECT_GT(num_held_of(stats), 100u);
    EXPECT_EQ(stats.num_private_pages, 0);
  }
  log::set_level(log::Level::info);
}

// The module drafts without knowing the grammar, and beside look-up, which knows what it forces.
TEST(DraftedGrammars, GiveTheSameAnswersWithDraftsOfTheModule) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  const ServerSettings settings = base_settings(kBundled);
  const std::vector<RequestInput> inputs = choices();
  const std::vector<Answer> want = run_each_alone(*model.engine(settings), inputs);
  for (const std::string_view algorithm : {"NEXTN", "auto"})
    for (const int num_drafts : {0, 2})
      for (const std::string_view overlap : {"off", "on"}) {
        SCOPED_TRACE(fmt::format("{}, {} drafts, overlap {}", algorithm, num_drafts, overlap));
        ServerSettings changed = settings;
        changed.speculation = {.algorithm = std::string(algorithm), .num_steps = num_drafts};
        changed.scheduler.overlap_schedule = std::string(overlap);
        const auto engine = model.engine(changed);
        ASSERT_NE(engine, nullptr);
        ASSERT_NO_FATAL_FAILURE(expect_equal_answers(run_patiently(*engine, inputs), want));
        const SchedulerStats stats = engine->stats().scheduler;
        if (num_drafts > 0) {
          EXPECT_GT(num_held_of(stats), 20u);
        }
        EXPECT_EQ(stats.num_private_pages, 0);
      }
  log::set_level(log::Level::info);
}

// Two drafts are right, all behind them are digits, which the grammar has nowhere.
TEST(DraftedGrammars, HaveNoDraftsThatTheGrammarForbids) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  std::vector<RequestInput> inputs;
  for (int i = 0; i < 4; ++i)
    inputs.push_back(
        grammar_input(random_tokens(740 + i, 10), GrammarKind::regex, std::string(kWords), 40));
  const ServerSettings settings = base_settings(kBundled);
  const std::vector<Answer> want = run_each_alone(*model.engine(settings), inputs);
  const Texts texts = texts_of(inputs, want);
  const TokenId digit = *model.tokenizer().find("7");
  ServerSettings changed = settings;
  changed.speculation = {.algorithm = "NGRAM", .num_steps = 4};
  Engine::Options options = model.options(changed);
  options.drafter = with_oracle(changed, texts, {.num_right = 2, .wrong = digit}).drafter;
  auto engine = Engine::create(std::move(options));
  ASSERT_TRUE(engine.has_value()) << describe(engine.error());
  expect_equal_answers(run_patiently(**engine, inputs), want);
  const SchedulerStats stats = (*engine)->stats().scheduler;
  EXPECT_GT(stats.drafted_total[1], 20u);
  EXPECT_EQ(stats.drafted_total[2], 0u);
  // Drafts fail at the end of an answer only.
  EXPECT_GE(num_held_of(stats) + 2 * inputs.size(), num_drafts_of(stats));
  log::set_level(log::Level::info);
}

// Forced tokens cannot be taken without a step of their own if log-probabilities are wanted, or if
// steps overlap. They are drafts then, and all hold.
TEST(DraftedGrammars, HaveForcedTokensAsDrafts) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  const std::string text = "The quick brown fox jumps over (a dog|a wall) and then it goes home\\.";
  RequestInput input = grammar_input(random_tokens(760, 9), GrammarKind::regex, text, 60);
  const ServerSettings settings = base_settings(kBundled);
  for (const bool overlaps : {false, true}) {
    SCOPED_TRACE(overlaps);
    input.sampling.num_top_logprobs = overlaps ? -1 : 2;
    const std::vector<Answer> want = run_each_alone(*model.engine(settings), {input});
    ServerSettings changed = settings;
    changed.speculation = {.algorithm = "NGRAM", .num_steps = 8};
    changed.scheduler.overlap_schedule = overlaps ? "on" : "off";
    const auto engine = model.engine(changed);
    ASSERT_NE(engine, nullptr);
    expect_equal_answers(run_patiently(*engine, {input}), want);
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.scheduler.forced_tokens_total, 0u);
    EXPECT_GT(stats.scheduler.drafted_total[0], 0u);
    EXPECT_LE(stats.steps.num_decode, want[0].tokens.size() / 2);
    EXPECT_GE(2 * num_held_of(stats.scheduler), want[0].tokens.size());
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
