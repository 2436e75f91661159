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

#include "engine/check/quality.h"
#include "engine/engine.h"
#include "engine/forecast/cost.h"

namespace hocket::testing {

inline constexpr int64_t kGb = 1'000'000'000;
inline constexpr int kInt4GroupSize = 32;  // weights of a group in the 4-bit test models

inline std::filesystem::path source_dir() {
  return HOCKET_SOURCE_DIR;
}

inline ServerSettings settings_for(const std::filesystem::path& model) {
  ServerSettings settings;
  settings.model.model_path = (source_dir() / model).string();
  settings.memory.max_total_tokens = 8192;
  settings.memory.max_running_requests = 32;
  settings.compute.cpu_bind = "none";
  return settings;
}

// Chooses the form of a model by its config.json; `folder` is absolute or relative to tests/.
inline ModelChoice choice_of(const std::filesystem::path& folder, ServerSettings settings = {}) {
  settings.model.model_path = (source_dir() / "tests" / folder).string();
  auto choice = choose_model_form(settings);
  EXPECT_TRUE(choice.has_value()) << folder << describe(choice.error());
  return choice ? *choice : ModelChoice{};
}

inline ModelCost cost_of(const ModelChoice& choice) {
  auto cost = ModelCost::measure(choice);
  EXPECT_TRUE(cost.has_value()) << describe(cost.error());
  return *std::move(cost);
}

inline std::unique_ptr<Engine> make_engine(const ServerSettings& settings) {
  auto engine = Engine::create({.settings = settings});
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

// Submits all requests at once and steps until all are answered.
inline std::vector<Answer> run_all(Engine& engine, std::vector<RequestInput> inputs) {
  Outbox outbox(65536);
  std::vector<RequestId> ids;
  std::map<RequestId, Answer> answers;
  for (RequestInput& input : inputs) {
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    const auto submitted = engine.submit(std::move(input));
    if (!submitted) {
      ADD_FAILURE() << describe(submitted.error());
      answers[ids.back()].done = true;
    }
  }
  for (int i = 0; i < 100'000; ++i) {
    const bool worked = engine.step(outbox);
    collect(outbox, answers);
    if (!worked) break;
  }
  std::vector<Answer> result;
  for (const RequestId id : ids) {
    EXPECT_TRUE(answers[id].done);
    result.push_back(std::move(answers[id]));
  }
  return result;
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
