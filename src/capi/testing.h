// Gives tests of the C interface an engine with the bundled model, and a handler that records
// events.
#pragma once

#include <gtest/gtest.h>
#include <hocket/hocket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/source_dir_testing.h"

namespace hocket::testing {

inline const std::string kModel = source_dir() / "models/hocket-tiny-qwen3-moe";
inline constexpr const char* kSum = R"([{"role": "user", "content": "What is 17 + 25?"}])";
inline constexpr const char* kStory =
    R"([{"role": "user", "content": "Tell me a story about a fox and a lantern."}])";

// Records the events of one request.
struct EventRecord {
  std::string text, stop_text;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int finish = HOCKET_GOES_ON, num_last = 0, error = 0, cached_tokens = 0, generated_tokens = 0;
  std::atomic<bool> ended = false;
};

inline int record_event(const hocket_event* event, void* user) {
  EventRecord& record = *static_cast<EventRecord*>(user);
  EXPECT_EQ(record.num_last, 0) << "an event after the last";
  EXPECT_EQ(event->struct_size, sizeof *event);
  EXPECT_EQ(event->text[event->text_length], 0);
  record.text.append(event->text, event->text_length);
  if (event->token >= 0) record.tokens.push_back(event->token);
  if (event->token >= 0) record.logprobs.push_back(event->logprob);
  if (event->finish == HOCKET_GOES_ON) return 0;
  record.finish = event->finish;
  record.cached_tokens = event->cached_tokens;
  record.generated_tokens = event->generated_tokens;
  if (event->stop_text != nullptr) record.stop_text = event->stop_text;
  record.error = event->error;
  ++record.num_last;
  record.ended = true;
  return 0;
}

inline void wait_for(const EventRecord& record) {
  while (!record.ended) std::this_thread::yield();
}

class Capi : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    hocket_options* options = hocket_options_new();
    ASSERT_EQ(hocket_options_set(options, "model-path", kModel.c_str()), HOCKET_OK);
    ASSERT_EQ(hocket_options_set(options, "max-total-tokens", "8192"), HOCKET_OK);
    ASSERT_EQ(hocket_options_set(options, "num-threads", "1"), HOCKET_OK);
    ASSERT_EQ(hocket_engine_open(options, &engine), HOCKET_OK) << hocket_error_message();
    hocket_options_free(options);
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(hocket_engine_close(engine), HOCKET_OK);
    engine = nullptr;
  }

  // Returns a greedy request for an answer to `messages`; the prompt lives as long as the fixture.
  hocket_request ask(const char* messages) {
    hocket_tokens prompt{};
    EXPECT_EQ(hocket_chat_tokens(engine, messages, nullptr, &prompt), HOCKET_OK)
        << hocket_error_message();
    prompts_.emplace_back(prompt.data, prompt.data + prompt.count);
    hocket_tokens_free(&prompt);
    hocket_request request{.struct_size = sizeof request};
    EXPECT_EQ(hocket_request_init(engine, &request), HOCKET_OK);
    request.prompt = prompts_.back().data();
    request.prompt_count = prompts_.back().size();
    request.temperature = 0;
    request.max_new_tokens = 64;
    return request;
  }

  static inline hocket_engine* engine = nullptr;

 private:
  std::vector<std::vector<int32_t>> prompts_;
};

}  // namespace hocket::testing
