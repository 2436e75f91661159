// Tests the whole engine on the bundled model: its recorded answers, and how many texts may wait.
#include "engine/engine.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/client_name.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;

nlohmann::json expected() {
  std::ifstream file(source_dir() / kBundledFolder / "expected.json");
  return nlohmann::json::parse(file);
}

// The file was made in fp32; a bf16 run may choose another token if the two best logits are closer
// than this.
constexpr double kComfortableMargin = 1.0;

TEST(Engine, GivesTheRecordedAnswers) {
  auto engine = make_engine(settings_for(kBundledFolder));
  ASSERT_NE(engine, nullptr);
  int compared = 0, whole = 0;
  const nlohmann::json recorded = expected();
  for (const auto& completion : recorded["completions"]) {
    const auto prompt = completion["prompt_token_ids"].get<std::vector<int>>();
    const auto want = completion["completion_token_ids"].get<std::vector<int>>();
    const auto margins = completion["margins"].get<std::vector<double>>();
    const auto answers = run_all(*engine, {greedy_input(prompt, static_cast<int>(want.size()))});
    const std::vector<int>& got = answers[0].tokens;
    size_t i = 0;
    for (; i < want.size() && margins[i] >= kComfortableMargin; ++i, ++compared) {
      ASSERT_LT(i, got.size()) << completion["kind"];
      ASSERT_EQ(got[i], want[i]) << completion["kind"] << " token " << i;
    }
    if (i < want.size()) continue;  // another token may have led to an earlier end
    EXPECT_EQ(got.size(), want.size()) << completion["kind"];
    ++whole;
  }
  std::printf("compared %d tokens, %d whole answers\n", compared, whole);
  EXPECT_GT(compared, 300);
}

TEST(Engine, Float32GivesTheRecordedAnswersToTheLastToken) {
  ServerSettings settings = settings_for(kBundledFolder);
  settings.model.dtype = "float32";
  auto engine = make_engine(settings);
  ASSERT_NE(engine, nullptr);
  std::vector<RequestInput> inputs;
  std::vector<std::vector<int>> wanted;
  const nlohmann::json recorded = expected();
  for (const auto& completion : recorded["completions"]) {
    wanted.push_back(completion["completion_token_ids"].get<std::vector<int>>());
    inputs.push_back(greedy_input(completion["prompt_token_ids"].get<std::vector<int>>(),
                                  static_cast<int>(wanted.back().size())));
  }
  const auto answers = run_all(*engine, std::move(inputs));
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].tokens, wanted[i]) << i;
}

TEST(Engine, OneRequestOfManyTextsLeavesHalfOfTheQueueToOthers) {
  ServerSettings settings = settings_for(kBundledFolder);
  settings.memory.max_queued_requests = 8;
  const auto engine = make_engine(settings);
  ASSERT_NE(engine, nullptr);
  const auto submit = [&](int index_in_request) -> std::optional<ErrorCode> {
    RequestInput input = greedy_input({10, 11, 12}, 3);
    input.id = Engine::next_request_id();
    input.index_in_request = index_in_request;
    const auto submitted = engine->submit(std::move(input));
    if (submitted) return std::nullopt;
    return submitted.error().code;
  };
  for (int place = 0; place < 4; ++place) EXPECT_EQ(submit(place), std::nullopt);
  EXPECT_EQ(submit(4), ErrorCode::invalid_request);  // it could never have room
  EXPECT_EQ(submit(1), ErrorCode::queue_full);       // the second text of another request
  for (int i = 0; i < 4; ++i) EXPECT_EQ(submit(0), std::nullopt);
  EXPECT_EQ(submit(0), ErrorCode::queue_full);
  Outbox outbox(64);
  while (engine->step(outbox)) {
  }
}

TEST(Engine, AClientThatFloodsTheQueueLeavesPlacesToOthersUntilItsTextsBegin) {
  ServerSettings settings = settings_for(kBundledFolder);
  settings.memory.max_queued_requests = 16;
  const auto engine = make_engine(settings);
  ASSERT_NE(engine, nullptr);
  const auto flood = [&](uint64_t client) {
    int num_in = 0;
    while (num_in <= 16) {
      RequestInput input = greedy_input({10, 11, 12}, 3);
      input.id = Engine::next_request_id();
      input.client = client_name(client, client);
      if (!engine->submit(std::move(input))) break;
      ++num_in;
    }
    return num_in;
  };
  Outbox outbox(256);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(flood(1), 14);
    EXPECT_EQ(flood(2), 2);
    EXPECT_EQ(flood(3), 0) << "all places are taken";
    while (engine->step(outbox)) {
    }
  }
}

}  // namespace
}  // namespace hocket
