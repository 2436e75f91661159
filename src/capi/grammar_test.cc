// Tests answers of a form, and requests with a priority, through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <regex>

#include "capi/testing.h"

namespace hocket::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},)"
    R"( "required": ["n"], "additionalProperties": false})";

class CapiGrammar : public Capi {
 protected:
  // Returns an answer that is random except for its form.
  std::string say(int kind, const char* grammar, uint64_t seed = 3) {
    hocket_request request = ask(kSum);
    request.temperature = 2;
    request.top_p = 1;
    request.seed = seed;
    request.grammar_kind = kind;
    request.grammar = grammar;
    EventRecord record;
    EXPECT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK)
        << grammar << ": " << hocket_error_message();
    EXPECT_EQ(record.finish, HOCKET_STOP) << grammar;
    return record.text;
  }
  int refusal(int kind, const char* grammar) {
    hocket_request request = ask(kSum);
    request.grammar_kind = kind;
    request.grammar = grammar;
    EventRecord record;
    return hocket_generate(engine, &request, record_event, &record);
  }
};

TEST_F(CapiGrammar, IsKeptWhateverIsDrawn) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Json made = Json::parse(say(HOCKET_JSON_SCHEMA, kSchema, seed));
    ASSERT_EQ(made.size(), 1u);
    EXPECT_LE(made.at("n").get<int>(), 99);
    EXPECT_GE(made.at("n").get<int>(), 0);
  }
  EXPECT_EQ(say(HOCKET_REGEX, "^(ab){2}$"), "abab");
  EXPECT_TRUE(
      std::regex_match(say(HOCKET_EBNF, "root ::= \"x\" [0-9] \"y\""), std::regex("x[0-9]y")));
  EXPECT_EQ(say(HOCKET_LARK, "start: \"p\" \"q\""), "pq");
  EXPECT_EQ(say(HOCKET_CHOICE, "[\"a.b (c)\"]"), "a.b (c)");
  EXPECT_EQ(
      say(HOCKET_STRUCTURAL_TAG,
          R"({"type": "structural_tag", "format": {"type": "const_string", "value": "said"}})"),
      "said");
}

TEST_F(CapiGrammar, WhatIsNoneIsRefusedWithASentence) {
  EXPECT_EQ(refusal(HOCKET_EBNF, "root ::= nothing"), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("nothing"));
  EXPECT_EQ(refusal(HOCKET_REGEX, "("), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("grammar"));
  EXPECT_EQ(refusal(HOCKET_JSON_SCHEMA, "{"), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("is no JSON"));
  EXPECT_EQ(refusal(HOCKET_JSON_SCHEMA, "7"), HOCKET_ERROR_INVALID_REQUEST);
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  EXPECT_EQ(refusal(HOCKET_CHOICE, deep.c_str()), HOCKET_ERROR_INVALID_REQUEST);
  const std::string tag = R"({"triggers": )" + deep + "}";
  EXPECT_EQ(refusal(HOCKET_STRUCTURAL_TAG, tag.c_str()), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("64"));
  EXPECT_EQ(refusal(HOCKET_CHOICE, "[]"), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_EQ(refusal(HOCKET_CHOICE, "[1]"), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_EQ(refusal(HOCKET_REGEX, ""), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_EQ(refusal(HOCKET_REGEX, nullptr), HOCKET_ERROR_BAD_VALUE);
  EXPECT_EQ(refusal(99, "x"), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("grammar_kind is 99"));
  EXPECT_EQ(refusal(HOCKET_FREE_TEXT, "x"), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_EQ(say(HOCKET_REGEX, "4[2]"), "42") << "the engine goes on";
}

// Asks an engine with this trial program for an answer by a grammar, and returns the status.
int answer_tried_by(const char* program, hocket_request request) {
  hocket_options* options = hocket_options_new();
  EXPECT_EQ(hocket_options_set(options, "model-path", kModel.c_str()), HOCKET_OK);
  EXPECT_EQ(hocket_options_set(options, "max-total-tokens", "2048"), HOCKET_OK);
  EXPECT_EQ(hocket_options_set(options, "num-threads", "1"), HOCKET_OK);
  EXPECT_EQ(hocket_options_set(options, "grammar-trials", program), HOCKET_OK);
  hocket_engine* tried = nullptr;
  const int opened = hocket_engine_open(options, &tried);
  hocket_options_free(options);
  if (opened != HOCKET_OK) return opened;
  request.grammar_kind = HOCKET_REGEX;
  request.grammar = "4[2]";
  EventRecord record;
  const int status = hocket_generate(tried, &request, record_event, &record);
  const std::string message = hocket_error_message();
  EXPECT_EQ(hocket_engine_close(tried), HOCKET_OK);
  if (status != HOCKET_OK) {
    EXPECT_THAT(message, HasSubstr("the process that tries grammars"));
  }
  return status;
}

TEST_F(CapiGrammar, AProgramTriesGrammarsWhereItIsNamed) {
  EXPECT_EQ(answer_tried_by("", ask(kSum)), HOCKET_OK);
  EXPECT_EQ(answer_tried_by("/bin/true", ask(kSum)), HOCKET_ERROR_INTERNAL) << "it tries none";
  EXPECT_EQ(answer_tried_by("/nowhere/hocket", ask(kSum)), HOCKET_ERROR_BAD_VALUE);
  EXPECT_THAT(hocket_error_message(), HasSubstr("/nowhere/hocket"));
}

TEST_F(CapiGrammar, AProgramBuiltForVersion1HasNone) {
  hocket_request request = ask(kSum);
  request.grammar = "nonsense";
  request.grammar_kind = 99;
  request.struct_size = offsetof(hocket_request, grammar);
  EventRecord record;
  ASSERT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK);
  EXPECT_EQ(record.text, "42");
}

class CapiReasoning : public CapiGrammar {
 protected:
  // Returns an answer of two digits, asked for with `extra`, and the reasoning that came before it.
  std::string answer(const char* messages, const char* extra, int* start) {
    hocket_tokens prompt{};
    int32_t reasoning = -1;
    EventRecord record;
    EXPECT_EQ(hocket_chat_prompt(engine, messages, extra, &prompt, &reasoning), HOCKET_OK);
    *start = reasoning;
    hocket_request request = ask(kSum);
    request.prompt = prompt.data;
    request.prompt_count = prompt.count;
    request.grammar_kind = HOCKET_REGEX;
    request.grammar = "[0-9]{2}";
    request.reasoning = reasoning;
    request.max_new_tokens = 200;
    EXPECT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_OK)
        << hocket_error_message();
    hocket_tokens_free(&prompt);
    return record.text;
  }
};

TEST_F(CapiReasoning, ComesBeforeTheFormWhereTheModelIsAskedToThink) {
  int start = -1;
  const std::string asked =
      answer(kSum, R"({"chat_template_kwargs": {"enable_thinking": true}})", &start);
  EXPECT_EQ(start, HOCKET_REASONING_POSSIBLE);
  EXPECT_TRUE(std::regex_match(asked, std::regex(R"(\s*<think>[^]*[^\s][^]*</think>\s*[0-9]{2})")))
      << asked;
  // The bundled model thinks only when asked to.
  for (const char* extra : {static_cast<const char*>(nullptr),
                            R"({"chat_template_kwargs": {"enable_thinking": false}})"}) {
    EXPECT_EQ(answer(kSum, extra, &start), "42");
    EXPECT_EQ(start, HOCKET_NO_REASONING);
  }
}

TEST_F(CapiReasoning, GoesOnWhereThePromptLeftItOpen) {
  int start = -1;
  const std::string text = answer(R"([{"role": "user", "content": "What is 17 + 25?"},)"
                                  R"( {"role": "assistant", "content": "<think>\n17 + 25"}])",
                                  R"({"continue_final_message": true})", &start);
  EXPECT_EQ(start, HOCKET_REASONING_OPEN);
  EXPECT_TRUE(std::regex_match(text, std::regex(R"([^]*</think>\s*[0-9]{2})"))) << text;
}

TEST_F(CapiReasoning, OfAnUnknownKindIsRefused) {
  hocket_request request = ask(kSum);
  EXPECT_EQ(request.reasoning, HOCKET_NO_REASONING);
  request.thoughts = 3;  // its name before version 4
  EXPECT_EQ(request.reasoning, 3);
  EventRecord record;
  EXPECT_EQ(hocket_generate(engine, &request, record_event, &record), HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("reasoning is 3"));
}

// Opens an engine that runs one request at a time, with options of its own.
hocket_engine* narrow_engine(std::vector<std::pair<const char*, const char*>> settings) {
  hocket_options* options = hocket_options_new();
  settings.insert(settings.end(), {{"model-path", kModel.c_str()},
                                   {"max-total-tokens", "8192"},
                                   {"max-running-requests", "1"},
                                   {"num-threads", "1"}});
  for (const auto& [name, value] : settings)
    EXPECT_EQ(hocket_options_set(options, name, value), HOCKET_OK) << hocket_error_message();
  hocket_engine* engine = nullptr;
  EXPECT_EQ(hocket_engine_open(options, &engine), HOCKET_OK) << hocket_error_message();
  hocket_options_free(options);
  return engine;
}

TEST_F(Capi, AnEngineWithoutGrammarsSaysSo) {
  hocket_engine* free_text = narrow_engine({{"grammar-backend", "none"}});
  hocket_request request = ask(kSum);
  request.grammar_kind = HOCKET_REGEX;
  request.grammar = "a";
  EventRecord record;
  EXPECT_EQ(hocket_generate(free_text, &request, record_event, &record),
            HOCKET_ERROR_INVALID_REQUEST);
  EXPECT_THAT(hocket_error_message(), HasSubstr("no structured output"));
  EXPECT_EQ(hocket_engine_close(free_text), HOCKET_OK);
}

TEST_F(Capi, ALargerPriorityGoesFirst) {
  hocket_engine* narrow = narrow_engine(
      {{"enable-priority-scheduling", "true"}, {"disable-priority-preemption", "true"}});
  hocket_request request = ask(kStory);
  EXPECT_EQ(request.priority, HOCKET_NO_PRIORITY);
  struct Line {
    hocket_engine* engine;
    hocket_request* request;
    std::string order;
    std::atomic<int> num_ended = 0;
    bool is_full = false;
  } line{.engine = narrow, .request = &request, .order = {}};
  struct Waiter {
    Line* line;
    char name;
  };
  static constexpr auto kNote = [](const hocket_event* event, void* user) {
    const Waiter& waiter = *static_cast<Waiter*>(user);
    if (event->finish == HOCKET_GOES_ON) return 0;
    waiter.line->order += waiter.name;
    ++waiter.line->num_ended;
    return 0;
  };
  // The first request has the only place; at its first token the others arrive, the least urgent
  // first.
  Waiter others[] = {{&line, 'n'}, {&line, '1'}, {&line, '5'}};
  struct First {
    Waiter waiter;
    Waiter* others;
  } first{.waiter = {&line, 'f'}, .others = others};
  const auto begin = [](const hocket_event* event, void* user) {
    First& f = *static_cast<First*>(user);
    if (!std::exchange(f.waiter.line->is_full, true)) {
      for (int i = 0; i < 3; ++i) {
        hocket_request next = *f.waiter.line->request;
        next.max_new_tokens = 4;
        next.priority = i == 0 ? HOCKET_NO_PRIORITY : f.others[i].name - '0';
        const int taken = hocket_submit(f.waiter.line->engine, &next, kNote, f.others + i, nullptr);
        EXPECT_EQ(taken, HOCKET_OK);
        if (taken != HOCKET_OK) ++f.waiter.line->num_ended;
      }
    }
    return kNote(event, &f.waiter);
  };
  hocket_request longest = request;
  longest.ignore_eos = 1;
  longest.max_new_tokens = 400;
  longest.priority = 9;
  ASSERT_EQ(hocket_submit(narrow, &longest, begin, &first, nullptr), HOCKET_OK);
  while (line.num_ended < 4) std::this_thread::yield();
  EXPECT_EQ(line.order, "f51n");
  EXPECT_EQ(hocket_engine_close(narrow), HOCKET_OK);
}

}  // namespace
}  // namespace hocket::testing
