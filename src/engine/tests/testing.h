// Helpers for tests of the engine: they load a model from this repository and run requests to their
// end, step by step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock_testing.h"
#include "engine/check/quality.h"
#include "engine/engine.h"
#include "engine/plan/testing.h"

namespace hocket::testing {

inline constexpr int kInt4GroupSize = 32;  // weights of a group in the 4-bit test models

inline std::unique_ptr<Engine> make_engine(const ServerSettings& settings,
                                           const Clock* clock = nullptr) {
  auto engine = Engine::create({.settings = settings, .clock = clock});
  if (!engine) {
    ADD_FAILURE() << describe(engine.error());
    return nullptr;
  }
  return *std::move(engine);
}

// The outputs of one request.
struct Answer {
  std::vector<int> tokens;
  std::vector<float> logprobs;  // those of the chosen tokens
  std::vector<std::vector<TokenLogprob>> top;
  std::vector<PositionLogprobs> prompt_logprobs;
  RequestSummary summary;
  bool done = false;
};

inline void collect(Outbox& outbox, std::map<RequestId, Answer>& answers) {
  while (auto output = outbox.pop()) {
    Answer& answer = answers[output->id];
    EXPECT_FALSE(answer.done);
    if (value(output->token) >= 0) answer.tokens.push_back(value(output->token));
    if (output->logprobs) {
      answer.logprobs.push_back(output->logprobs->logprob);
      answer.top.push_back(output->logprobs->top);
    }
    if (output->prompt_logprobs) answer.prompt_logprobs = std::move(*output->prompt_logprobs);
    if (output->summary) {
      answer.summary = std::move(*output->summary);
      answer.done = true;
    }
  }
}

// Submits requests and returns their ids; `answers` says at once that a refused one is done.
inline std::vector<RequestId> submit_all(Engine& engine, std::vector<RequestInput> inputs,
                                         std::map<RequestId, Answer>& answers) {
  std::vector<RequestId> ids;
  for (RequestInput& input : inputs) {
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    const auto submitted = engine.submit(std::move(input));
    if (!submitted) {
      ADD_FAILURE() << describe(submitted.error());
      answers[ids.back()].done = true;
    }
  }
  return ids;
}

// Takes the answers out of `answers`, in the order of `ids`.
inline std::vector<Answer> take_all(std::map<RequestId, Answer>& answers,
                                    const std::vector<RequestId>& ids) {
  std::vector<Answer> taken;
  for (const RequestId id : ids) {
    EXPECT_TRUE(answers[id].done);
    taken.push_back(std::move(answers[id]));
  }
  return taken;
}

// Submits all requests at once and steps until all are answered. Each step takes kFakeStep by the
// engine's own clock, if it is given.
inline constexpr Duration kFakeStep = std::chrono::milliseconds(10);
inline std::vector<Answer> run_all(Engine& engine, std::vector<RequestInput> inputs,
                                   FakeClock* clock = nullptr) {
  Outbox outbox(65536);
  std::map<RequestId, Answer> answers;
  const std::vector<RequestId> ids = submit_all(engine, std::move(inputs), answers);
  for (int i = 0; i < 100'000; ++i) {
    const bool worked = engine.step(outbox);
    collect(outbox, answers);
    if (!worked) break;
    if (clock != nullptr) clock->advance(kFakeStep);
  }
  return take_all(answers, ids);
}

// True if the logits are equal by bits and no row is missing.
inline bool same_logits(const LogitTable& a, const LogitTable& b) {
  return std::ranges::none_of(a.values, [](float x) { return std::isnan(x); }) &&
         a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

inline RequestInput greedy_input(const std::vector<int>& prompt, int max_new) {
  RequestInput input;
  for (const int token : prompt) input.prompt.push_back(TokenId{token});
  input.sampling.temperature = 0;
  input.sampling.max_new_tokens = max_new;
  return input;
}

}  // namespace hocket::testing
