// Helpers for tests of answers that follow grammars: the bundled model with its tokenizer.
#pragma once

#include <thread>

#include "engine/tests/service.h"
#include "text/tokens/detokenizer.h"

namespace hocket::testing {

class GrammarModel {
 public:
  GrammarModel() : folder_(source_dir() / kBundledFolder), tokenizer_(*Tokenizer::load(folder_)) {}

  const Tokenizer& tokenizer() const { return tokenizer_; }
  Engine::Options options(const ServerSettings& settings) const {
    return {.settings = settings,
            .grammars = GrammarVocabulary::Source{tokenizer_.handle(), folder_}};
  }
  std::unique_ptr<Engine> engine(const ServerSettings& settings) const {
    auto made = Engine::create(options(settings));
    if (!made) {
      ADD_FAILURE() << describe(made.error());
      return nullptr;
    }
    return *std::move(made);
  }
  std::string text(const Answer& answer) const {
    std::vector<TokenId> ids;
    for (const int token : answer.tokens) ids.push_back(TokenId{token});
    return *tokenizer_.decode(ids, SpecialTokens::skip);
  }

 private:
  std::filesystem::path folder_;
  Tokenizer tokenizer_;
};

inline RequestInput grammar_input(const std::vector<int>& prompt, GrammarKind kind,
                                  std::string text, int max_new = 150) {
  RequestInput input = greedy_input(prompt, max_new);
  input.sampling.grammar = std::make_shared<const GrammarSpec>(
      GrammarSpec{.kind = kind, .text = std::move(text), .field = "regex"});
  return input;
}

// Runs requests as run_all() does, and waits for grammars that compile meanwhile.
inline std::vector<Answer> run_patiently(Engine& engine, std::vector<RequestInput> inputs) {
  Outbox outbox(65536);
  std::map<RequestId, Answer> answers;
  const std::vector<RequestId> ids = submit_all(engine, std::move(inputs), answers);
  const TimePoint deadline = RealClock().now() + 5 * kPatience;
  const auto all_done = [&] {
    return std::ranges::all_of(ids, [&](RequestId id) { return answers[id].done; });
  };
  while (!all_done() && RealClock().now() < deadline) {
    if (!engine.step(outbox)) std::this_thread::sleep_for(std::chrono::microseconds(200));
    collect(outbox, answers);
  }
  while (engine.step(outbox)) {  // a row beyond the end may be under way
  }
  return take_all(answers, ids);
}

// Runs the requests one after the other, so that each is alone in its batch.
inline std::vector<Answer> run_each_alone(Engine& engine, std::vector<RequestInput> inputs) {
  std::vector<Answer> answers;
  for (RequestInput& input : inputs) {
    std::vector<RequestInput> one;
    one.push_back(std::move(input));
    answers.push_back(std::move(run_patiently(engine, std::move(one))[0]));
  }
  return answers;
}

}  // namespace hocket::testing
