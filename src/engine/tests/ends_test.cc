// Tests the ways a request can end, and the requests that the engine refuses.
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "compute/weights/safetensors.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using namespace testing;

const std::filesystem::path kMoeFolder = "tests/golden/qwen3_moe_bf16";

std::vector<int> tokens(int count, int first = 10) {
  std::vector<int> ids(count);
  for (int i = 0; i < count; ++i) ids[i] = (first + 7 * i) % 500;
  return ids;
}

RequestInput endless(const std::vector<int>& prompt, int max_new) {
  RequestInput input = greedy_input(prompt, max_new);
  input.sampling.ignore_eos = true;
  return input;
}

ErrorCode refusal(Engine& engine, RequestInput input) {
  input.id = Engine::next_request_id();
  const auto submitted = engine.submit(std::move(input));
  EXPECT_FALSE(submitted.has_value());
  if (submitted) return ErrorCode::internal;
  EXPECT_FALSE(submitted.error().message.empty());
  return submitted.error().code;
}

TEST(EngineAborts, AreDroppedOnceTheMailboxOfARankThatStandsStillIsFull) {
  log::set_level(log::Level::error);
  ServerSettings settings = settings_for(kMoeFolder);
  settings.memory.max_queued_requests = 1;
  const auto engine = make_engine(settings);
  ASSERT_NE(engine, nullptr);
  Outbox outbox(1);  // the rank waits for a reader, and there is none
  engine->start(outbox);
  RequestInput input = endless(tokens(9), 100);
  input.id = Engine::next_request_id();
  ASSERT_TRUE(engine->submit(std::move(input)));
  while (outbox.size() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 20000; ++i) engine->abort(RequestId{~uint64_t{0}});
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  outbox.close();
  engine->stop();
  log::set_level(log::Level::info);
}

// Runs each test with and without overlapped steps.
class EngineEnds : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    engine_ = make_engine(settings());
    ASSERT_NE(engine_, nullptr);
  }
  static ServerSettings settings(const std::filesystem::path& model = kMoeFolder) {
    ServerSettings made = settings_for(model);
    made.scheduler.overlap_schedule = GetParam();
    return made;
  }
  static bool overlaps() { return GetParam() == std::string("on"); }
  Answer run_one(RequestInput input) {
    std::vector<RequestInput> inputs;
    inputs.push_back(std::move(input));
    return std::move(run_all(*engine_, std::move(inputs))[0]);
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineEnds, ByLength) {
  const Answer answer = run_one(endless(tokens(9), 13));
  EXPECT_EQ(answer.tokens.size(), 13);
  EXPECT_EQ(answer.summary.finish, FinishReason::length);
  EXPECT_EQ(answer.summary.prompt_tokens, 9);
  EXPECT_EQ(answer.summary.generated_tokens, 13);
}

TEST_P(EngineEnds, ByAStopTokenButNotBeforeMinNewTokens) {
  const std::vector<int> free = run_one(endless(tokens(9), 13)).tokens;
  const int stop = free[3];
  RequestInput input = endless(tokens(9), 13);
  input.sampling.stop_ids = {TokenId{stop}};
  const Answer stopped = run_one(input);
  const auto first = std::ranges::find(free, stop);
  EXPECT_EQ(stopped.tokens, std::vector<int>(free.begin(), first + 1));
  EXPECT_EQ(stopped.summary.finish, FinishReason::stop);
  EXPECT_EQ(value(stopped.summary.matched_stop), stop);

  input.sampling.min_new_tokens = 8;
  const Answer longer = run_one(input);
  EXPECT_GE(longer.tokens.size(), 8);
  for (int i = 0; i < 8; ++i) EXPECT_NE(longer.tokens[i], stop);
}

TEST_P(EngineEnds, ByTheModelsEndTokenUnlessIgnored) {
  const std::vector<int> free = run_one(endless(tokens(9), 13)).tokens;
  // A token that the model would give anyway becomes its end token.
  Engine::Options options{.settings = settings()};
  options.tokenizer_eos = TokenId{free[2]};
  engine_ = *Engine::create(std::move(options));
  const Answer ended = run_one(greedy_input(tokens(9), 13));
  EXPECT_EQ(ended.summary.finish, FinishReason::stop);
  EXPECT_EQ(value(ended.summary.matched_stop), free[2]);
  EXPECT_LE(ended.tokens.size(), 3);
  EXPECT_EQ(run_one(endless(tokens(9), 13)).tokens, free);
}

TEST_P(EngineEnds, ByAbortWhileRunningOrWaiting) {
  ServerSettings changed = settings();
  changed.memory.max_running_requests = 2;
  engine_ = make_engine(changed);
  const std::vector<int> free = run_one(endless(tokens(40), 30)).tokens;
  Outbox outbox(4096);
  std::map<RequestId, Answer> answers;
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) {
    RequestInput input = endless(i == 0 ? tokens(40) : tokens(50, 100 * i), 30);
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  }
  for (int i = 0; i < 6; ++i) engine_->step(outbox);
  EXPECT_EQ(engine_->stats().scheduler.num_running, 2);
  EXPECT_EQ(engine_->stats().scheduler.num_waiting, 1);
  engine_->abort(ids[1]);
  engine_->abort(ids[2]);
  engine_->abort(RequestId{999'999});
  engine_->step(outbox);
  EXPECT_EQ(engine_->stats().scheduler.num_running, 1);  // aborted within one step
  EXPECT_EQ(engine_->stats().scheduler.num_waiting, 0);
  while (engine_->step(outbox)) {
  }
  collect(outbox, answers);
  EXPECT_EQ(answers[ids[0]].tokens, free);
  EXPECT_EQ(answers[ids[1]].summary.finish, FinishReason::abort);
  EXPECT_GT(answers[ids[1]].tokens.size(), 0);
  EXPECT_LT(answers[ids[1]].tokens.size(), 30);
  EXPECT_EQ(answers[ids[2]].summary.finish, FinishReason::abort);
  EXPECT_EQ(answers[ids[2]].tokens.size(), 0);
  const SchedulerStats now = engine_->stats().scheduler;
  EXPECT_EQ(now.num_private_pages, 0);
  EXPECT_EQ(now.num_free_pages + now.num_cached_pages, now.num_pages);
}

// A stop string was found in the text while the next token is being computed.
TEST_P(EngineEnds, ByCompletionWhileRunning) {
  const std::vector<int> free = run_one(endless(tokens(40), 30)).tokens;
  ASSERT_TRUE(engine_->flush_cache());
  Outbox outbox(4096);
  std::map<RequestId, Answer> answers;
  RequestInput input = endless(tokens(40), 30);
  const RequestId id = input.id = Engine::next_request_id();
  ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  for (int i = 0; i < 12; ++i) engine_->step(outbox), collect(outbox, answers);
  const auto num_seen = std::ssize(answers[id].tokens);
  EXPECT_EQ(num_seen, overlaps() ? 11 : 12);
  engine_->finish_whole(id);
  while (engine_->step(outbox)) {
  }
  collect(outbox, answers);
  EXPECT_TRUE(answers[id].done);
  EXPECT_EQ(answers[id].summary.finish, FinishReason::stop);
  // No token comes after those that were sent before.
  EXPECT_EQ(answers[id].tokens, std::vector<int>(free.begin(), free.begin() + num_seen));
  const SchedulerStats now = engine_->stats().scheduler;
  EXPECT_EQ(now.num_private_pages, 0);
  EXPECT_GT(now.num_cached_pages, 0);
}

// With overlapped steps, the end of an answer is seen when its next row is under way.
TEST_P(EngineEnds, WithARowTooManyWhereStepsOverlap) {
  const std::vector<int> free = run_one(endless(tokens(9), 13)).tokens;
  RequestInput input = endless(tokens(9), 13);
  input.sampling.stop_ids = {TokenId{free[5]}};
  const auto num_tokens = std::ranges::find(free, free[5]) - free.begin() + 1;
  const uint64_t before = engine_->stats().steps.num_decode;
  const Answer answer = run_one(std::move(input));
  EXPECT_EQ(answer.tokens, std::vector<int>(free.begin(), free.begin() + num_tokens));
  EXPECT_EQ(answer.summary.generated_tokens, num_tokens);
  EXPECT_GE(answer.summary.times.finished, answer.summary.times.prefill_done);
  const auto num_decode = static_cast<int64_t>(engine_->stats().steps.num_decode - before);
  EXPECT_EQ(num_decode, num_tokens - 1 + overlaps());
  EXPECT_EQ(engine_->stats().steps.num_overlapped > 0, overlaps());
}

TEST_P(EngineEnds, RefusesWhatCannotRun) {
  EXPECT_EQ(refusal(*engine_, greedy_input({}, 5)), ErrorCode::invalid_request);
  EXPECT_EQ(refusal(*engine_, greedy_input({1, 512}, 5)), ErrorCode::invalid_request);
  EXPECT_EQ(refusal(*engine_, greedy_input({1, -1}, 5)), ErrorCode::invalid_request);
  EXPECT_EQ(refusal(*engine_, greedy_input({1}, 0)), ErrorCode::invalid_request);
  RequestInput biased = greedy_input({1}, 5);
  biased.sampling.logit_bias = {{TokenId{512}, 1.0f}};
  EXPECT_EQ(refusal(*engine_, std::move(biased)), ErrorCode::invalid_request);
  const int context = engine_->info().context_length;
  EXPECT_EQ(refusal(*engine_, greedy_input(tokens(context), 1)),
            ErrorCode::context_length_exceeded);
  // A request may run to the last token of the context.
  EXPECT_EQ(run_one(endless(tokens(context - 3), 3)).tokens.size(), 3);
}

TEST_P(EngineEnds, RefusesBeyondTheQueue) {
  ServerSettings changed = settings();
  changed.memory.max_queued_requests = 2;
  engine_ = make_engine(changed);
  for (int i = 0; i < 2; ++i) {
    RequestInput input = endless(tokens(5), 3);
    input.id = Engine::next_request_id();
    ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  }
  EXPECT_EQ(refusal(*engine_, endless(tokens(5), 3)), ErrorCode::queue_full);
  Outbox outbox(64);
  while (engine_->step(outbox)) {
  }
  EXPECT_EQ(run_one(endless(tokens(5), 3)).tokens.size(), 3);
}

TEST_P(EngineEnds, FlushesTheCacheOnlyWhenIdle) {
  run_one(endless(tokens(70), 5));
  EXPECT_EQ(run_one(endless(tokens(70), 5)).summary.cached_tokens, 64);
  RequestInput input = endless(tokens(70), 5);
  input.id = Engine::next_request_id();
  ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  Outbox outbox(64);
  engine_->step(outbox);
  EXPECT_FALSE(engine_->flush_cache());
  while (engine_->step(outbox)) {
  }
  EXPECT_TRUE(engine_->flush_cache());
  engine_->step(outbox);
  EXPECT_EQ(engine_->stats().scheduler.num_free_pages, engine_->info().num_pages);
  EXPECT_EQ(run_one(endless(tokens(70), 5)).summary.cached_tokens, 0);
}

TEST_P(EngineEnds, FlushesTheCacheAsSoonAsAllAreAnswered) {
  const int stop = run_one(endless(tokens(70), 9)).tokens[4];
  RequestInput input = endless(tokens(70), 9);
  input.sampling.stop_ids = {TokenId{stop}};
  const RequestId id = input.id = Engine::next_request_id();
  ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  Outbox outbox(64);
  std::map<RequestId, Answer> answers;
  for (int i = 0; i < 20 && !answers[id].done; ++i) engine_->step(outbox), collect(outbox, answers);
  ASSERT_EQ(answers[id].summary.finish, FinishReason::stop);
  EXPECT_TRUE(engine_->flush_cache());
  EXPECT_FALSE(engine_->step(outbox));
  EXPECT_EQ(engine_->stats().scheduler.num_free_pages, engine_->info().num_pages);
}

TEST_P(EngineEnds, NobodyHearsAndNobodyIsHurt) {
  Outbox closed(1);
  closed.close();
  for (int i = 0; i < 3; ++i) {
    RequestInput input = endless(tokens(30, i), 5 + i);
    input.id = Engine::next_request_id();
    ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  }
  while (engine_->step(closed)) {
  }
  EXPECT_EQ(engine_->stats().num_requests_finished, 3);
  EXPECT_EQ(engine_->stats().scheduler.num_private_pages, 0);
  EXPECT_EQ(run_one(endless(tokens(5), 3)).tokens.size(), 3);
}

TEST_P(EngineEnds, TheEngineGoesInTheMiddleOfAStep) {
  Outbox outbox(4096);
  for (int i = 0; i < 3; ++i) {
    RequestInput input = endless(tokens(200, i), 50);
    input.id = Engine::next_request_id();
    ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
    EXPECT_TRUE(engine_->step(outbox));
  }
  engine_.reset();
  EXPECT_GE(outbox.size(), 2);
}

TEST_P(EngineEnds, StopAnswersEverybody) {
  Outbox outbox(65536);
  engine_->start(outbox);
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) {
    RequestInput input = endless(tokens(30, i), 900);
    input.id = Engine::next_request_id();
    ids.push_back(input.id);
    ASSERT_TRUE(engine_->submit(std::move(input)).has_value());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  engine_->stop();
  std::map<RequestId, Answer> answers;
  collect(outbox, answers);
  for (const RequestId id : ids) {
    ASSERT_TRUE(answers[id].done);
    EXPECT_EQ(answers[id].summary.finish, FinishReason::abort);
    EXPECT_EQ(answers[id].summary.error.code, ErrorCode::shutting_down);
  }
  EXPECT_EQ(refusal(*engine_, endless(tokens(5), 3)), ErrorCode::shutting_down);
}

TEST_P(EngineEnds, PromptLogprobsAreThoseOfTheAnswer) {
  RequestInput input = endless(tokens(40), 12);
  input.sampling.num_top_logprobs = 5;
  const Answer answer = run_one(input);
  std::vector<int> all = tokens(40);
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  RequestInput forced = endless(all, 1);
  forced.sampling.num_top_logprobs = 5;
  forced.sampling.prompt_logprobs_from = 0;
  const Answer taught = run_one(forced);
  ASSERT_EQ(taught.prompt_logprobs.size(), 52);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(taught.prompt_logprobs[40 + i].logprob),
              std::bit_cast<uint32_t>(answer.logprobs[i]));
    for (int j = 0; j < 5; ++j)
      EXPECT_EQ(taught.prompt_logprobs[40 + i].top[j].logprob, answer.top[i][j].logprob);
  }
}

// Copies the model and makes the embedding of one token NaN.
std::filesystem::path poisoned_model(int token, const std::string& name) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / ("hocket_poisoned_" + name);
  std::filesystem::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(source_dir() / kMoeFolder / file, folder / file,
                               std::filesystem::copy_options::overwrite_existing);
  const auto file = folder / "model.safetensors";
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  std::vector<char> content(bytes);
  stream.read(content.data(), bytes);
  const auto header = parse_safetensors_header(std::as_bytes(std::span(content)), bytes);
  HOCKET_CHECK(header.has_value());
  const SafetensorsEntry& entry = header->tensors.at("model.embed_tokens.weight");
  HOCKET_CHECK(entry.type == StoredType::bf16);
  const int64_t row = entry.shape[1] * 2;
  stream.seekp(header->data_offset + entry.begin + token * row);
  const std::vector<char> ones(row, static_cast<char>(0xff));  // 0xffff is a NaN of bf16
  stream.write(ones.data(), row);
  return folder;
}

TEST_P(EngineEnds, NanLogitsFailOneRequestAndLeaveTheOthersTheirBits) {
  constexpr int kPoison = 7;
  const auto inputs = [] {
    std::vector<RequestInput> made;
    for (int i = 0; i < 4; ++i) {
      made.push_back(endless(tokens(20 + 30 * i, 100 * i + 3), 16));
      made.back().sampling.num_top_logprobs = 20;
    }
    return made;
  };
  const std::vector<Answer> want = run_all(*engine_, inputs());

  engine_ = make_engine(settings(poisoned_model(kPoison, GetParam())));
  ASSERT_NE(engine_, nullptr);
  for (int round = 0; round < 2; ++round) {  // the second round uses pages that held NaN
    std::vector<RequestInput> with_poison = inputs();
    with_poison.insert(with_poison.begin() + 2, endless({3, kPoison, 5}, 16));
    std::vector<Answer> got = run_all(*engine_, std::move(with_poison));
    EXPECT_EQ(got[2].summary.finish, FinishReason::error);
    EXPECT_EQ(got[2].summary.error.code, ErrorCode::bad_logits);
    EXPECT_EQ(got[2].tokens.size(), 0);
    got.erase(got.begin() + 2);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(std::ranges::count(want[i].tokens, kPoison), 0);
      ASSERT_EQ(got[i].tokens, want[i].tokens);
      for (size_t t = 0; t < want[i].top.size(); ++t)
        for (size_t j = 0; j < 20; ++j)
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i].top[t][j].logprob),
                    std::bit_cast<uint32_t>(want[i].top[t][j].logprob));
    }
    EXPECT_TRUE(engine_->flush_cache());
  }
}

INSTANTIATE_TEST_SUITE_P(OverlapSchedule, EngineEnds, ::testing::Values("off", "on"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace hocket
