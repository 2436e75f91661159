// The fields that ask for structured output, and the grammars that they become.
#include <gtest/gtest.h>

#include "server/apis/openai/openai_api.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/sglang/generate_api.h"
#include "server/apis/sglang/generate_request.h"
#include "server/endpoints.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

Result<GenerationRequest> parsed(const Api& api, const std::string& fields) {
  static const FakeServerEngine engine;
  const ServedModel model = {&engine.info(), &bundled_text().tokenizer,
                             &bundled_text().chat_template};
  const std::string body =
      &api == &kChatApi          ? R"({"messages":[{"role":"user","content":"Hi"}],)" + fields + "}"
      : &api == &kCompletionsApi ? R"({"prompt":["Hi","Ho"],)" + fields + "}"
                                 : R"({"text":"Hi","sampling_params":{)" + fields + "}}";
  HOCKET_TRY(const Json json, parse_json_object(body));
  return &api == &kChatApi          ? parse_chat(json, model)
         : &api == &kCompletionsApi ? parse_completions(json, model)
                                    : parse_generate(json, model);
}

const std::string kSchema = R"({"type":"object","properties":{"n":{"const":1.50}}})";

struct Spelling {
  std::string fields;
  GrammarKind kind;
  std::string text, field;
};

void expect_all(const Api& api, const std::string& path, const std::vector<Spelling>& spellings) {
  for (const Spelling& s : spellings) {
    const auto request = parsed(api, s.fields);
    ASSERT_TRUE(request) << s.fields << ": " << request.error().message;
    for (const Prompt& prompt : request->prompts) {
      const auto& grammar = prompt.sampling.grammar;
      ASSERT_NE(grammar, nullptr) << s.fields;
      EXPECT_EQ(grammar->kind, s.kind) << s.fields;
      EXPECT_EQ(grammar->text, s.text) << s.fields;
      EXPECT_EQ(grammar->field, path + s.field) << s.fields;
      EXPECT_EQ(grammar, request->prompts[0].sampling.grammar);  // all answers share it
    }
  }
}

const std::vector<Spelling> kEverywhere = {
    {R"("regex":"^a+$")", GrammarKind::regex, "a+", "regex"},
    {R"("json_schema":)" + json_string(kSchema), GrammarKind::json_schema, kSchema, "json_schema"},
    {R"("json_schema":{"type":"null"})", GrammarKind::json_schema, R"({"type":"null"})",
     "json_schema"},
    {R"("json_schema":"$$ANY$$")", GrammarKind::json_schema, "{}", "json_schema"},
    {R"("ebnf":"root ::= [a]")", GrammarKind::lark, "start: /(?:[\\x{61}])/\n", "ebnf"},
    {R"("guided_choice":["a","b.c"])", GrammarKind::regex, "(a|b\\x2Ec)", "guided_choice"},
    {R"("guided_json":{"type":"null"})", GrammarKind::json_schema, R"({"type":"null"})",
     "guided_json"},
    {R"("guided_regex":"x")", GrammarKind::regex, "x", "guided_regex"},
    {R"("guided_grammar":"start: \"a\"")", GrammarKind::lark, "start: \"a\"", "guided_grammar"},
    {R"("guided_grammar":"root ::= [a]")", GrammarKind::lark, "start: /(?:[\\x{61}])/\n",
     "guided_grammar"},
    {R"("structured_outputs":{"choice":["a"]})", GrammarKind::regex, "(a)",
     "structured_outputs.choice"},
    {R"("structured_outputs":{"json":{"type":"null"}})", GrammarKind::json_schema,
     R"({"type":"null"})", "structured_outputs.json"},
    {R"("structured_outputs":{"regex":"x"})", GrammarKind::regex, "x", "structured_outputs.regex"},
    {R"("structured_outputs":{"json_object":true})", GrammarKind::json_schema,
     R"({"type":"object"})", "structured_outputs.json_object"},
};

TEST(Structure, IsAskedForInManyWords) {
  expect_all(kChatApi, "", kEverywhere);
  expect_all(kCompletionsApi, "", kEverywhere);
  expect_all(kGenerateApi, "sampling_params.", {kEverywhere[0], kEverywhere[1], kEverywhere[4]});
  const std::vector<Spelling> formats = {
      {R"("response_format":{"type":"json_object"})", GrammarKind::json_schema,
       R"({"type":"object"})", "response_format.type"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,)"
       R"("schema":)" +
           kSchema + "}}",
       GrammarKind::json_schema, R"({"type":"object","properties":{"n":{"const":1.5}}})",
       "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
       GrammarKind::json_schema, R"({"type":"object"})", "response_format.json_schema.schema"}};
  expect_all(kChatApi, "", formats);
  expect_all(kCompletionsApi, "", formats);
  for (const char* tag : {R"("structural_tag":{"format":{"type":"const_string","value":"x"}})",
                          R"("structural_tag":"{\"format\":{\"type\":\"const_string\",)"
                          R"(\"value\":\"x\"}}")",
                          R"("response_format":{"type":"structural_tag",)"
                          R"("format":{"type":"const_string","value":"x"}})"}) {
    const auto request = parsed(kChatApi, tag);
    ASSERT_TRUE(request) << tag << request.error().message;
    EXPECT_EQ(request->prompts[0].sampling.grammar->text, "start: \"x\"\n") << tag;
  }
  for (const char* free :
       {R"("response_format":{"type":"text"})", R"("regex":null)", R"("response_format":null)"}) {
    const auto request = parsed(kChatApi, free);
    ASSERT_TRUE(request) << free;
    EXPECT_EQ(request->prompts[0].sampling.grammar, nullptr);
  }
}

TEST(Structure, IsRefusedWhereItIsNone) {
  struct Refusal {
    const char* fields;
    const char* param;
    const char* words;
  };
  for (const Refusal& r : std::vector<Refusal>{
           {R"("regex":"")", "regex", "is empty"},
           {R"("regex":"a","ebnf":"root ::= [a]")", "ebnf", "cannot be given beside regex"},
           {R"("regex":"a","response_format":{"type":"json_object"})", "response_format.type",
            "cannot be given beside regex"},
           {R"("structured_outputs":{"regex":"a","choice":["b"]})", "structured_outputs.choice",
            "beside structured_outputs.regex"},
           {R"("json_schema":"{")", "json_schema", "holds no JSON"},
           {R"("json_schema":5)", "json_schema", "JSON schema"},
           {R"("ebnf":"root ::= (")", "ebnf", "line 1"},
           {R"("guided_choice":[])", "guided_choice", "at least one"},
           {R"("guided_choice":[1])", "guided_choice", "strings"},
           {R"("structural_tag":{})", "structural_tag", "triggers"},
           {R"("response_format":{"type":"json_schema"})", "response_format.json_schema",
            "missing"},
           {R"("response_format":{"type":"json_schema","json_schema":{"schma":{}}})",
            "response_format.json_schema.schma", "unknown field"},
           {R"("structured_outputs":{"whitespace_pattern":" "})",
            "structured_outputs.whitespace_pattern", "not supported"},
       }) {
    const auto request = parsed(kChatApi, r.fields);
    ASSERT_FALSE(request) << r.fields;
    EXPECT_EQ(request.error().param, r.param) << r.fields;
    const std::string said = request.error().message + " | " + request.error().fix;
    EXPECT_NE(said.find(r.words), std::string::npos) << said;
  }
}

// JSON in a text is limited to the depth of JSON in a body.
TEST(Structure, JsonInATextIsNotNestedWithoutEnd) {
  const std::string deep =
      R"({\"triggers\":)" + std::string(400'000, '[') + std::string(400'000, ']') + "}";
  for (const char* name : {"structural_tag", "json_schema", "guided_json"}) {
    const auto request = parsed(kChatApi, fmt::format("\"{}\":\"{}\"", name, deep));
    ASSERT_FALSE(request) << name;
    EXPECT_EQ(request.error().param, name);
    EXPECT_NE(request.error().message.find("64"), std::string::npos) << request.error().message;
  }
}

// The size of the text is checked before it is parsed.
TEST(Structure, JsonInATextIsNoLongerThanAGrammar) {
  const std::string text = "\"" + std::string(kMaxGrammarBytes + 1, '[') + "\"";
  for (const auto& [fields, param] :
       {std::pair{R"("json_schema":)" + text, "json_schema"},
        {R"("guided_json":)" + text, "guided_json"},
        {R"("structured_outputs":{"json":)" + text + "}", "structured_outputs.json"},
        {R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + text + "}}",
         "response_format.json_schema.schema"},
        {R"("response_format":{"type":"structural_tag","structures":)" + text + "}",
         "response_format.type"}}) {
    const auto request = parsed(kChatApi, fields);
    ASSERT_FALSE(request) << param;
    EXPECT_EQ(request.error().param, param);
    EXPECT_NE(request.error().message.find("comes to"), std::string::npos);
  }
}

}  // namespace
}  // namespace hocket
