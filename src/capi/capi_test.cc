// Tests the C interface as callers use it: every function of the header, with the bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hocket/hocket.h>

#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "capi/testing.h"

namespace hocket::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Capi, AnswersASum) {
  const hocket_request request = ask(kSum);
  EventRecord record;
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK)
      << hocket_error_message();
  EXPECT_EQ(record.text, "42");
  EXPECT_EQ(record.finish, HOCKET_STOP);
  EXPECT_EQ(record.num_last, 1);
  EXPECT_EQ(record.generated_tokens, static_cast<int>(record.tokens.size()));
  for (const float logprob : record.logprobs) EXPECT_TRUE(std::isnan(logprob));
}

TEST_F(Capi, TheModelIsDescribed) {
  hocket_info info{.struct_size = sizeof info};
  ASSERT_EQ(hocket_engine_info(engine, &info), HOCKET_OK);
  EXPECT_STREQ(info.model_name, "hocket-tiny-qwen3-moe");
  EXPECT_EQ(info.max_total_tokens, 8192);
  EXPECT_EQ(info.has_tokenizer, 1);
  EXPECT_EQ(info.has_chat_template, 1);
  EXPECT_GT(info.vocab_size, 0);
  EXPECT_EQ(hocket_api_version(), HOCKET_API_VERSION);
}

TEST_F(Capi, TokensAndTextAreTheSameThing) {
  const std::string text = "A fox, twice: \xF0\x9F\xA6\x8A\xF0\x9F\xA6\x8A";
  hocket_tokens tokens{};
  ASSERT_EQ(hocket_tokenize(engine, text.data(), text.size(), &tokens), HOCKET_OK);
  ASSERT_GT(tokens.count, 0u);
  hocket_text back{};
  ASSERT_EQ(hocket_detokenize(engine, tokens.data, tokens.count, &back), HOCKET_OK);
  EXPECT_EQ(std::string(back.data, back.length), text);
  EXPECT_EQ(back.data[back.length], 0);
  hocket_text_free(&back);
  hocket_tokens_free(&tokens);
  EXPECT_EQ(tokens.data, nullptr);
  EXPECT_EQ(hocket_tokenize(engine, "\xFF", 1, &tokens), HOCKET_ERROR_INVALID_REQUEST);
}

TEST_F(Capi, PiecesOfTextJoinToTheTextOfTheTokens) {
  hocket_request request = ask(kStory);
  request.ignore_eos = 1;
  EventRecord record;
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK);
  EXPECT_EQ(record.finish, HOCKET_LENGTH);
  ASSERT_EQ(record.tokens.size(), 64u);
  hocket_text whole{};
  ASSERT_EQ(hocket_detokenize(engine, record.tokens.data(), record.tokens.size(), &whole),
            HOCKET_OK);
  EXPECT_EQ(record.text, std::string(whole.data, whole.length));
  hocket_text_free(&whole);
}

TEST_F(Capi, ManyThreadsGetTheAnswersThatOneGets) {
  hocket_request request = ask(kStory);
  request.temperature = 1;
  request.seed = 7;
  EventRecord alone;
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &alone), HOCKET_OK);
  std::vector<EventRecord> record(8);
  std::vector<std::thread> threads;
  for (EventRecord& one : record)
    threads.emplace_back([&, own = request]() mutable {
      own.seed = 7 + static_cast<uint64_t>(&one - record.data()) % 2;
      EXPECT_EQ(hocket_generate(engine, &own, record_event, &one), HOCKET_OK);
    });
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> others;
  for (size_t i = 0; i < record.size(); ++i) {
    if (i % 2 == 1) {
      others.insert(record[i].text);
    } else {
      EXPECT_EQ(record[i].text, alone.text);
    }
  }
  EXPECT_EQ(others.size(), 1u);
  EXPECT_FALSE(others.contains(alone.text));
}

TEST_F(Capi, AStopTextEndsTheAnswerAndIsNoPartOfIt) {
  hocket_request request = ask(kStory);
  EventRecord whole;
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &whole), HOCKET_OK);
  const std::string stop = whole.text.substr(10, 9);
  const char* stops[] = {"never to be seen", stop.c_str()};
  request.stop_texts = stops;
  request.stop_text_count = 2;
  EventRecord record;
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK);
  EXPECT_EQ(record.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(record.finish, HOCKET_STOP);
  EXPECT_EQ(record.stop_text, stop);
}

TEST_F(Capi, LogprobsAndBias) {
  hocket_request request = ask(kSum);
  request.max_new_tokens = 1;
  request.logprobs = 3;
  struct LastEvent {
    int32_t token = -1;
    std::vector<int32_t> top;
    std::vector<float> logprobs;
  } seen;
  const auto see = [](const hocket_event* event, void* user) {
    LastEvent& out = *static_cast<LastEvent*>(user);
    if (event->token < 0) return 0;
    out.token = event->token;
    out.top.assign(event->top_tokens, event->top_tokens + event->top_count);
    out.logprobs.assign(event->top_logprobs, event->top_logprobs + event->top_count);
    EXPECT_LE(event->logprob, 0);
    return 0;
  };
  ASSERT_EQ(hocket_generate(engine, &request, see, &seen), HOCKET_OK);
  ASSERT_EQ(seen.top.size(), 3u);
  EXPECT_EQ(seen.token, seen.top[0]) << "greedy takes the likeliest";
  EXPECT_GE(seen.logprobs[0], seen.logprobs[1]);
  EXPECT_GE(seen.logprobs[1], seen.logprobs[2]);
  const int32_t second = seen.top[1];
  const float bias = 100;
  request.bias_tokens = &second;
  request.bias = &bias;
  request.bias_count = 1;
  ASSERT_EQ(hocket_generate(engine, &request, see, &seen), HOCKET_OK);
  EXPECT_EQ(seen.token, second);
}

TEST_F(Capi, ARequestCanBeCancelled) {
  hocket_request request = ask(kStory);
  request.ignore_eos = 1;
  request.max_new_tokens = 4000;
  EventRecord record;
  uint64_t id = 0;
  ASSERT_EQ(hocket_submit(engine, &request, record_event, &record, &id), HOCKET_OK);
  hocket_cancel(engine, id);
  hocket_cancel(engine, id + 1'000'000);
  wait_for(record);
  EXPECT_EQ(record.finish, HOCKET_CANCELLED);
  EXPECT_LT(record.tokens.size(), 4000u);
}

TEST_F(Capi, AHandlerCanCancelToo) {
  hocket_request request = ask(kStory);
  request.ignore_eos = 1;
  request.max_new_tokens = 4000;
  EventRecord record;
  const auto enough = [](const hocket_event* event, void* user) {
    record_event(event, user);
    return static_cast<int>(static_cast<EventRecord*>(user)->tokens.size() >= 3);
  };
  ASSERT_EQ(hocket_generate(engine, &request, enough, &record), HOCKET_OK);
  EXPECT_EQ(record.finish, HOCKET_CANCELLED);
  EXPECT_EQ(record.num_last, 1);
}

TEST_F(Capi, AHandlerMaySubmitButNotWait) {
  const hocket_request request = ask(kSum);
  struct Chain {
    hocket_engine* engine;
    const hocket_request* request;
    int generate = -1, close = -1;
    bool submitted = false;
    EventRecord second;
  } chain{.engine = engine, .request = &request, .second = {}};
  const auto on_event = [](const hocket_event* event, void* user) {
    Chain& c = *static_cast<Chain*>(user);
    if (event->finish == HOCKET_GOES_ON) return 0;
    c.generate = hocket_generate(c.engine, c.request, record_event, &c.second);
    c.close = hocket_engine_close(c.engine);
    c.submitted = hocket_submit(c.engine, c.request, record_event, &c.second, nullptr) == HOCKET_OK;
    return 0;
  };
  ASSERT_EQ(hocket_generate(engine, &request, on_event, &chain), HOCKET_OK);
  EXPECT_EQ(chain.generate, HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_EQ(chain.close, HOCKET_ERROR_INVALID_REQUEST);
  ASSERT_TRUE(chain.submitted);
  wait_for(chain.second);
  EXPECT_EQ(chain.second.text, "42");
}

TEST_F(Capi, WhatCannotBeIsRefusedWithASentence) {
  EventRecord record;
  const auto refused = [&](auto change, int code, const char* sentence) {
    hocket_request request = ask(kSum);
    change(request);
    EXPECT_EQ(hocket_generate(engine, &request, record_event, &record), code) << sentence;
    EXPECT_THAT(hocket_error_message(), HasSubstr(sentence));
  };
  using R = hocket_request;
  constexpr int kInvalid = HOCKET_ERROR_INVALID_REQUEST;
  refused([](R& r) { r.temperature = std::nan(""); }, kInvalid, "temperature is nan");
  refused([](R& r) { r.top_p = 0; }, kInvalid, "top_p");
  refused([](R& r) { r.repetition_penalty = 1e-45; }, kInvalid, "between 0.001 and 1000");
  refused([](R& r) { r.logprobs = 21; }, kInvalid, "logprobs is 21, must be -1 to 20");
  refused([](R& r) { r.min_new_tokens = 65; }, kInvalid, "more than max_new_tokens 64");
  refused([](R& r) { r.prompt_count = 0; }, kInvalid, "no tokens");
  refused([](R& r) { r.prompt = nullptr; }, HOCKET_ERROR_BAD_VALUE, "prompt is NULL");
  refused([](R& r) { r.max_new_tokens = 1 << 30; }, HOCKET_ERROR_CONTEXT_LENGTH, "context");
  refused([](R& r) { r.struct_size += 8; }, HOCKET_ERROR_BAD_VALUE, "struct_size");
  EXPECT_STREQ(hocket_error_fix(), "the program was built for a newer libhocket");
  const std::vector<int32_t> ids(1025);
  refused([&](R& r) { r.stop_tokens = ids.data(), r.stop_token_count = ids.size(); }, kInvalid,
          "stop_tokens are 1025, at most 1024 may be");
  const int32_t outside = 1 << 30;
  refused([&](R& r) { r.prompt = &outside, r.prompt_count = 1; }, kInvalid, "outside");
  EXPECT_EQ(record.num_last, 0) << "no event follows an error";
  hocket_tokens tokens{};
  EXPECT_EQ(hocket_chat_tokens(engine, "{", nullptr, &tokens), kInvalid);
  EXPECT_EQ(hocket_chat_tokens(engine, "[]", nullptr, &tokens), kInvalid);
  EXPECT_EQ(hocket_chat_tokens(engine, kSum, R"({"tool": []})", &tokens), kInvalid);
  EXPECT_THAT(hocket_error_message(), HasSubstr("'tool'"));
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  EXPECT_EQ(hocket_chat_tokens(engine, deep.c_str(), nullptr, &tokens), kInvalid);
  EXPECT_THAT(hocket_error_message(), HasSubstr("64 levels"));
  const std::string tools = R"({"tools": )" + deep + "}";
  EXPECT_EQ(hocket_chat_tokens(engine, kSum, tools.c_str(), &tokens), kInvalid);
  EXPECT_EQ(hocket_tokenize(nullptr, "", 0, &tokens), HOCKET_ERROR_BAD_VALUE);
}

TEST_F(Capi, ChatsAreBoundedAsInTheServer) {
  hocket_tokens tokens{};
  const std::string long_text(9 << 20, 'x');
  const auto status_of = [&](const std::string& messages, const char* extra = nullptr) {
    return hocket_chat_tokens(engine, messages.c_str(), extra, &tokens);
  };
  const std::string call = R"([{"role": "user", "content": "a"}, {"role": "assistant",
      "content": "", "tool_calls": [{"function": {"name": "f", "arguments": ")" +
                           long_text + R"("}}]}])";
  EXPECT_EQ(status_of(call), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("arguments of tool calls, at most 8388608"));
  const std::string blanks(33 << 20, ' ');
  EXPECT_EQ(status_of(blanks + kSum), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("at most 33554432 are taken"));
  EXPECT_EQ(status_of(kSum, (blanks + "{}").c_str()), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_EQ(status_of(R"([{"role": "user", "content": ")" + long_text + R"("}])"),
            HOCKET_ERROR_CONTEXT_LENGTH);
}

TEST_F(Capi, AnOlderHeadersStructIsReadAsFarAsItGoes) {
  hocket_request request = ask(kSum);
  EventRecord record;
  request.logprobs = 5;
  request.struct_size = offsetof(hocket_request, logprobs);
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK);
  EXPECT_EQ(record.text, "42");
  for (const float logprob : record.logprobs) EXPECT_TRUE(std::isnan(logprob));
}

TEST(CapiOptions, NamesAreThoseOfTheFlags) {
  hocket_options* options = hocket_options_new();
  std::set<std::string> names;
  size_t count = 0;
  while (const char* name = hocket_option_name(count++)) names.insert(name);
  EXPECT_EQ(names.size(), count - 1) << "a name twice";
  EXPECT_TRUE(names.contains("context-length"));
  EXPECT_EQ(hocket_options_set(options, "contxt-length", "1"), HOCKET_ERROR_BAD_VALUE);
  EXPECT_STREQ(hocket_error_fix(), "context-length?");
  EXPECT_EQ(hocket_options_set(options, "context-length", "many"), HOCKET_ERROR_BAD_VALUE);
  EXPECT_STREQ(hocket_error_message(), "context-length cannot be many");
  EXPECT_EQ(hocket_options_set(options, "mem-fraction-static", "0.5"), HOCKET_OK);
  EXPECT_EQ(hocket_options_set(options, "disable-radix-cache", "true"), HOCKET_OK);
  EXPECT_EQ(hocket_options_set(options, "disable-radix-cache", "maybe"), HOCKET_ERROR_BAD_VALUE);
  EXPECT_EQ(hocket_options_set(nullptr, "dtype", "auto"), HOCKET_ERROR_BAD_VALUE);
  for (const char* value : {"nan", "inf", "-1"}) {
    EXPECT_EQ(hocket_options_set(options, "mem-fraction-static", value), HOCKET_ERROR_BAD_VALUE);
    EXPECT_EQ(hocket_options_set(options, "schedule-conservativeness", value),
              HOCKET_ERROR_BAD_VALUE);
  }
  EXPECT_EQ(hocket_options_set(options, "max-running-requests", "2147483647"),
            HOCKET_ERROR_BAD_VALUE);
  hocket_options_free(options);
}

TEST(CapiOpen, AModelThatIsNotThereIsAnError) {
  hocket_options* options = hocket_options_new();
  hocket_engine* engine = nullptr;
  EXPECT_EQ(hocket_engine_open(options, &engine), HOCKET_ERROR_MODEL_NOT_FOUND);
  EXPECT_STREQ(hocket_error_fix(), "set the option model-path");
  hocket_options_set(options, "model-path", "/nowhere");
  EXPECT_EQ(hocket_engine_open(options, &engine), HOCKET_ERROR_MODEL_NOT_FOUND);
  EXPECT_EQ(engine, nullptr);
  EXPECT_EQ(hocket_engine_close(nullptr), HOCKET_OK);
  hocket_options_free(options);
}

TEST(CapiOpen, ClosingEndsWhatRuns) {
  hocket_options* options = hocket_options_new();
  hocket_options_set(options, "model-path", kModel.c_str());
  hocket_options_set(options, "max-total-tokens", "8192");
  hocket_options_set(options, "num-threads", "1");
  hocket_engine* engine = nullptr;
  ASSERT_EQ(hocket_engine_open(options, &engine), HOCKET_OK) << hocket_error_message();
  hocket_options_free(options);
  hocket_tokens prompt{};
  ASSERT_EQ(hocket_chat_tokens(engine, kStory, nullptr, &prompt), HOCKET_OK);
  hocket_request request{.struct_size = sizeof request};
  ASSERT_EQ(hocket_request_init(engine, &request), HOCKET_OK);
  request.prompt = prompt.data;
  request.prompt_count = prompt.count;
  request.ignore_eos = 1;
  request.max_new_tokens = 3000;
  std::vector<EventRecord> record(3);
  for (EventRecord& one : record)
    ASSERT_EQ(hocket_submit(engine, &request, record_event, &one, nullptr), HOCKET_OK);
  hocket_tokens_free(&prompt);
  EXPECT_EQ(hocket_engine_close(engine), HOCKET_OK);
  for (const EventRecord& one : record) {
    EXPECT_EQ(one.finish, HOCKET_CANCELLED);
    EXPECT_EQ(one.num_last, 1);
  }
}

}  // namespace
}  // namespace hocket::testing
