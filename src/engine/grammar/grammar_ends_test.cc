// Tests how answers that follow grammars begin and end.
#include "base/log.h"
#include "engine/grammar/testing.h"
#include "text/grammar/spellings.h"

namespace hocket {
namespace {

using namespace testing;

class GrammarEnds : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    log::set_level(log::Level::error);
    settings_ = base_settings(kBundled);
    settings_.scheduler.overlap_schedule = GetParam();
    engine_ = model_.engine(settings_);
    ASSERT_NE(engine_, nullptr);
  }
  void TearDown() override { log::set_level(log::Level::info); }
  Answer answer(RequestInput input) {
    std::vector<RequestInput> one;
    one.push_back(std::move(input));
    return std::move(run_patiently(*engine_, std::move(one))[0]);
  }

  const GrammarModel model_;
  ServerSettings settings_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(GrammarEnds, WhereNothingMoreMayFollow) {
  const Answer got = answer(grammar_input({1, 2, 3}, GrammarKind::regex, "(yes|no)!"));
  EXPECT_EQ(got.summary.finish, FinishReason::stop);
  EXPECT_EQ(value(got.summary.matched_stop), -1);  // no end token was drawn for it
  EXPECT_TRUE(model_.text(got) == "yes!" || model_.text(got) == "no!") << model_.text(got);
  EXPECT_EQ(got.summary.generated_tokens, std::ssize(got.tokens));
}

// The spelling of a control token is written with the tokens of ordinary text.
TEST_P(GrammarEnds, WithTheSpellingOfAControlToken) {
  const std::string choices = *regex_of_choices(std::vector<std::string>{"<|im_end|>"});
  for (const auto& [kind, grammar, want] :
       std::vector<std::tuple<GrammarKind, std::string, std::string>>{
           {GrammarKind::json_schema, R"({"const":"a <|im_end|> b"})", "\"a <|im_end|> b\""},
           {GrammarKind::regex, "<\\|im_end\\|>", "<|im_end|>"},
           {GrammarKind::regex, choices, "<|im_end|>"},
           {GrammarKind::json_schema,
            R"({"type":"object","properties":{"tok":{"enum":["<|im_start|>"]}},"required":["tok"],)"
            R"("additionalProperties":false,"x-guidance":{"whitespace_flexible":false}})",
            R"({"tok":"<|im_start|>"})"}}) {
    const Answer got = answer(grammar_input({1, 2, 3}, kind, grammar));
    EXPECT_EQ(got.summary.finish, FinishReason::stop) << got.summary.error.message;
    EXPECT_EQ(model_.text(got), want);
  }
}

TEST_P(GrammarEnds, WithAnEndTokenWhereMoreCouldFollow) {
  RequestInput input = grammar_input({1, 2, 3}, GrammarKind::regex, "[0-9]+");
  input.sampling.logit_bias = {{*model_.tokenizer().eos_id(), 100.0F}};
  const Answer got = answer(input);
  EXPECT_EQ(got.summary.finish, FinishReason::stop);
  EXPECT_EQ(got.summary.matched_stop, *model_.tokenizer().eos_id());
  EXPECT_EQ(got.tokens.size(), 2u);
  // ignore_eos only concerns free text: a grammar still ends.
  input.sampling.ignore_eos = true;
  EXPECT_EQ(answer(input).summary.finish, FinishReason::stop);
}

TEST_P(GrammarEnds, AtTheLimit) {
  const Answer got = answer(grammar_input({1, 2, 3}, GrammarKind::regex, "[a-z ]{200}", 5));
  EXPECT_EQ(got.summary.finish, FinishReason::length);
  EXPECT_EQ(got.tokens.size(), 5u);
}

TEST_P(GrammarEnds, EvenBeforeTheLeastNumberOfTokens) {
  RequestInput input = grammar_input({1, 2, 3}, GrammarKind::regex, "[a-z]{2,3}");
  input.sampling.min_new_tokens = 20;
  input.sampling.temperature = 1;
  const Answer got = answer(input);
  EXPECT_EQ(got.summary.finish, FinishReason::stop);
  EXPECT_EQ(model_.text(got).size(), 3u);  // the longest text that fits
}

TEST_P(GrammarEnds, WithAnErrorWhereNothingCanBeMadeOfIt) {
  const Answer got = answer(grammar_input({1, 2, 3}, GrammarKind::regex, "(a"));
  EXPECT_EQ(got.summary.finish, FinishReason::error);
  EXPECT_EQ(got.summary.error.code, ErrorCode::invalid_request);
  EXPECT_EQ(got.summary.error.param, "regex");
  EXPECT_TRUE(got.tokens.empty());
}

TEST_P(GrammarEnds, WithAnErrorWhereNothingIsLeft) {
  RequestInput input = grammar_input({1, 2, 3}, GrammarKind::regex, "[0-9]");
  input.sampling.allowed_ids = {TokenId{500}};
  const Answer got = answer(input);
  EXPECT_EQ(got.summary.finish, FinishReason::error);
  EXPECT_EQ(got.summary.error.code, ErrorCode::invalid_request);
  // The other requests continue.
  EXPECT_EQ(answer(greedy_input({1, 2, 3}, 3)).tokens.size(), 3u);
}

TEST_P(GrammarEnds, WhenItIsAbortedWhileItsGrammarCompiles) {
  Outbox outbox(1024);
  RequestInput input = grammar_input({1, 2, 3}, GrammarKind::regex, "[a-z]{40}");
  input.id = Engine::next_request_id();
  const RequestId id = input.id;
  ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  engine_->abort(id);
  std::map<RequestId, Answer> answers;
  for (int i = 0; i < 1000 && !answers[id].done; ++i) {
    engine_->step(outbox);
    collect(outbox, answers);
  }
  EXPECT_EQ(answers[id].summary.finish, FinishReason::abort);
  EXPECT_EQ(engine_->stats().scheduler.num_held, 0);
}

TEST_P(GrammarEnds, LogprobsAreOfTheUntouchedLogits) {
  RequestInput input = grammar_input({1, 2, 3}, GrammarKind::regex, "zq");
  input.sampling.num_top_logprobs = 1;
  const Answer got = answer(input);
  RequestInput free = greedy_input({1, 2, 3}, 1);
  free.sampling.num_top_logprobs = 1;
  const Answer plain = answer(free);
  ASSERT_FALSE(got.top.empty());
  EXPECT_EQ(value(got.top[0][0].token), plain.tokens[0]);
  EXPECT_EQ(bits(got.top[0][0].logprob), bits(plain.logprobs[0]));
  EXPECT_LT(got.logprobs[0], plain.logprobs[0]);
}

INSTANTIATE_TEST_SUITE_P(OverlapSchedule, GrammarEnds, ::testing::Values("off", "on"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GrammarBackend, IsOffWhereItIsNotThereOrNotWanted) {
  log::set_level(log::Level::error);
  const GrammarModel model;
  ServerSettings settings = base_settings(kBundled);
  const auto refused = [](Engine& engine) {
    RequestInput input = grammar_input({1}, GrammarKind::regex, "a");
    input.id = Engine::next_request_id();
    const auto submitted = engine.submit(std::move(input));
    return submitted ? std::string() : submitted.error().message;
  };
  EXPECT_NE(refused(*make_engine(settings)).find("tokenizer"), std::string::npos);
  settings.model.grammar_backend = "none";
  const auto off = model.engine(settings);
  EXPECT_NE(refused(*off).find("--grammar-backend none"), std::string::npos);
  EXPECT_EQ(off->info().grammar_backend, "none");
  settings.model.grammar_backend = "llguidance";
  Engine::Options misfit = model.options(settings);
  misfit.tokenizer_size = 1 << 30;
  const auto without = Engine::create(std::move(misfit));
  ASSERT_TRUE(without.has_value()) << without.error().message;
  EXPECT_EQ((*without)->info().grammar_backend, "none");
  EXPECT_NE(refused(**without).find("its tokenizer has 1073741824 ids"), std::string::npos);
  settings.model.grammar_backend = "xgrammar";
  const auto unknown = Engine::create(model.options(settings));
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::bad_value);
  settings.model.grammar_backend = "llguidance";
  const auto on = model.engine(settings);
  EXPECT_EQ(on->info().grammar_backend, "llguidance");
  RequestInput large =
      grammar_input({1}, GrammarKind::regex, std::string(kMaxGrammarBytes + 1, 'a'));
  EXPECT_FALSE(on->submit(std::move(large)).has_value());
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
