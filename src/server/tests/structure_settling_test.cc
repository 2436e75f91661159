// Requests' demands on their answers, settled once the prompt is known: calls, reasoning before
// structured output, thinking budgets. The three APIs of conversations have different fields for
// them.
#include "server/generation/structure_settling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/apis/anthropic/messages_request.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/responses/response_store.h"
#include "server/apis/responses/responses_request.h"
#include "server/endpoints.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const ModelFormats& formats() {
  static const ModelFormats kFormats =
      choose_model_formats({}, &bundled_text().chat_template, &bundled_text().tokenizer).value();
  return kFormats;
}

ServedModel served_with_grammars() {
  static FakeServerEngine engine;
  static const EngineInfo info = [] {
    EngineInfo with = engine.info();
    with.grammar_backend = "llguidance";
    return with;
  }();
  return {&info, &bundled_text().tokenizer, &bundled_text().chat_template, &formats()};
}

Result<SamplingParams> settled(Result<GenerationRequest> request) {
  if (!request) return std::unexpected(request.error());
  HOCKET_TRY(auto prepared, prepare_request(*std::move(request), served_with_grammars()));
  return std::move(prepared.request.prompts.front().sampling);
}

Json with(Json body, const char* more) {
  body.update(Json::parse(more));
  return body;
}

// Returns the sampling of a /v1/chat/completions request.
SamplingParams chat(const char* more) {
  auto sampling = settled(parse_chat(with(chat_body(), more), served_with_grammars()));
  EXPECT_TRUE(sampling) << more << ": " << sampling.error().message;
  return sampling.value_or(SamplingParams());
}

std::string grammar(const SamplingParams& sampling) {
  return sampling.grammar == nullptr ? "" : sampling.grammar->text;
}

#define TOOLS                                                           \
  R"("tools":[{"type":"function","function":{"name":"f","parameters":)" \
  R"({"type":"object","properties":{"a":{"type":"integer"}}}}},)"       \
  R"({"type":"function","function":{"name":"g"}}])"
#define NO_REASONING R"("chat_template_kwargs":{"enable_thinking":false})"

TEST(StructureSettling, ACallThatIsAskedForIsAGrammar) {
  const SamplingParams any = chat("{" TOOLS R"(,"tool_choice":"required"})");
  ASSERT_NE(any.grammar, nullptr);
  EXPECT_EQ(any.grammar->field, "tool_choice");
  for (const char* name : {"name\\\": \\\"f\\\"", "name\\\": \\\"g\\\"", ")*"})
    EXPECT_THAT(grammar(any), HasSubstr(name));
  EXPECT_THAT(grammar(chat("{" TOOLS R"(,"tool_choice":"required","parallel_tool_calls":false})")),
              Not(HasSubstr(")*")));
  EXPECT_THAT(
      grammar(chat("{" TOOLS R"(,"tool_choice":{"type":"function","function":{"name":"g"}}})")),
      Not(HasSubstr("\\\"f\\\"")));
  EXPECT_EQ(chat("{" TOOLS "}").grammar, nullptr);  // no tool is strict
  EXPECT_EQ(chat("{" TOOLS R"(,"tool_choice":"none"})").grammar, nullptr);
}

TEST(StructureSettling, EveryApiSaysIt) {
  const Json messages = with(chat_body(), R"({"max_tokens":99,
      "tools":[{"name":"f","input_schema":{"type":"object"}},
               {"name":"g","input_schema":{"type":"object"}}]})");
  const auto claude = [&](const char* more) {
    return settled(parse_messages(with(messages, more), served_with_grammars())).value();
  };
  EXPECT_THAT(grammar(claude(R"({"tool_choice":{"type":"any"}})")), HasSubstr(")*"));
  EXPECT_THAT(grammar(claude(R"({"tool_choice":{"type":"any","disable_parallel_tool_use":true}})")),
              Not(HasSubstr(")*")));
  EXPECT_THAT(grammar(claude(R"({"tool_choice":{"type":"tool","name":"g"}})")),
              Not(HasSubstr("\\\"f\\\"")));
  EXPECT_EQ(claude("{}").grammar, nullptr);
  EXPECT_EQ(
      claude(R"({"thinking":{"type":"enabled","budget_tokens":1024}})").reasoning_limit->tokens,
      1024);
  EXPECT_EQ(claude(R"({"thinking":{"type":"disabled"}})").reasoning_limit, nullptr);

  ResponseStore store({});
  const auto responses = [&](const char* more) {
    const Json body = Json::parse(R"({"input":"Hi","tools":[{"type":"function","name":"f"},
        {"type":"function","name":"g","strict":true}]})");
    return settled(parse_responses(with(body, more), served_with_grammars(),
                                   {.store = &store, .who = "w"}))
        .value();
  };
  EXPECT_EQ(responses(R"({"tool_choice":"required"})").grammar->field, "tool_choice");
  EXPECT_THAT(grammar(responses(R"({"tool_choice":{"type":"function","name":"g"}})")),
              Not(HasSubstr("\\\"f\\\"")));
  EXPECT_EQ(responses("{}").grammar->field, "tools");  // g is strict
  EXPECT_EQ(responses(R"({"reasoning":{"effort":"low"}})").reasoning_limit->tokens, 1024);
}

TEST(StructureSettling, ReasoningComesBeforeStructureUnlessThePromptClosedIt) {
  const char* format = R"("response_format":{"type":"json_object"})";
  const auto with_format = [&](const std::string& more) {
    return chat(fmt::format("{{{}{}}}", format, more).c_str());
  };
  const SamplingParams closed = with_format("," NO_REASONING);
  EXPECT_EQ(closed.grammar->kind, GrammarKind::json_schema);
  EXPECT_EQ(grammar(closed), R"({"type":"object"})");
  EXPECT_EQ(grammar(with_format("")), grammar(closed));  // the model thinks only if asked to
  const SamplingParams possible =
      with_format(R"(,"chat_template_kwargs":{"enable_thinking":true})");
  EXPECT_EQ(possible.grammar->kind, GrammarKind::lark);
  EXPECT_EQ(possible.grammar->field, "response_format.type");
  EXPECT_THAT(grammar(possible), HasSubstr("\"<think>\""));
  // The prompt has begun the reasoning, so no mark opens it.
  Json body = with(chat_body(), R"({"continue_final_message":true,
                                    "response_format":{"type":"json_object"}})");
  body["messages"].push_back({{"role", "assistant"}, {"content", "<think>\nWell, "}});
  const auto open = settled(parse_chat(body, served_with_grammars())).value();
  EXPECT_THAT(grammar(open), HasSubstr("think"));
  EXPECT_THAT(grammar(open), Not(HasSubstr("\"<think>\"")));
  body["separate_reasoning"] = false;  // changes what the client sees; the model still thinks
  EXPECT_EQ(grammar(settled(parse_chat(body, served_with_grammars())).value()), grammar(open));
}

TEST(StructureSettling, BudgetsEndReasoning) {
  const SamplingParams with_tools = chat("{" TOOLS R"(,"thinking_budget":7})");
  ASSERT_NE(with_tools.reasoning_limit, nullptr);
  const ReasoningLimit& limit = *with_tools.reasoning_limit;
  EXPECT_EQ(limit.tokens, 7);
  EXPECT_EQ(limit.open, ids_of("<think>"));
  ASSERT_EQ(limit.ends.size(), 2u);
  EXPECT_EQ(limit.ends[0], ids_of("</think>"));
  EXPECT_EQ(limit.ends[1], ids_of("<tool_call>"));
  EXPECT_EQ(chat(R"({"max_thinking_tokens":0})").reasoning_limit->tokens, 0);
  EXPECT_EQ(chat("{}").reasoning_limit, nullptr);
  EXPECT_EQ(chat(R"({"thinking_budget":7,)" NO_REASONING "}").reasoning_limit, nullptr);
  EXPECT_EQ(parse_chat(with(chat_body(), R"({"thinking_budget":-1})"), served_with_grammars())
                .error()
                .param,
            "thinking_budget");
}

TEST(StructureSettling, EffortIsABudgetWhereTheTemplateHasNoWordsForIt) {
  EXPECT_FALSE(formats().caps.uses_effort);
  EXPECT_EQ(chat(R"({"reasoning_effort":"medium"})").reasoning_limit->tokens, 8192);
  EXPECT_EQ(chat(R"({"reasoning_effort":"max"})").reasoning_limit, nullptr);
  EXPECT_EQ(chat(R"({"reasoning_effort":"none"})").reasoning_limit,
            nullptr);  // the prompt closes it
  EXPECT_EQ(chat(R"({"reasoning_effort":"high","thinking_budget":9})").reasoning_limit->tokens, 9);
  const auto odd =
      parse_chat(with(chat_body(), R"({"reasoning_effort":"some"})"), served_with_grammars());
  EXPECT_EQ(odd.error().param, "reasoning_effort");
  EXPECT_THAT(odd.error().message, HasSubstr("minimal, low, medium"));
  EXPECT_EQ(model_formats_json(formats())["reasoning_effort_budgets"]["low"], 1024);
}

#undef TOOLS
#undef NO_REASONING

}  // namespace
}  // namespace hocket
