// Tests grammars of calls as Gemma writes them: they allow what the tools' schemas allow, and the
// parser reads it back.
#include "text/grammar/bare_key_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/source_dir_testing.h"
#include "text/answers/answer_parser.h"
#include "text/answers/bare_key_value.h"
#include "text/grammar/answer_rules.h"
#include "text/grammar/testing.h"

namespace hocket {
namespace {

using testing::TestVocabulary;
using Form = nlohmann::json;

// A tokenizer in which the marks are control tokens, as in Gemma's own.
const char* folder_with_marks() {
  namespace fs = std::filesystem;
  static const std::string kFolder = [] {
    const fs::path from = source_dir() / "tests/golden/tokenizers/qwen2";
    const fs::path to = fs::path(::testing::TempDir()) / "qwen2_with_marks_of_gemma";
    fs::create_directories(to);
    fs::copy_file(from / "tokenizer_config.json", to / "tokenizer_config.json",
                  fs::copy_options::overwrite_existing);
    Form tokenizer = Form::parse(std::ifstream(from / "tokenizer.json"));
    int next = 0;
    for (const Form& token : tokenizer["added_tokens"])
      next = std::max(next, token["id"].get<int>() + 1);
    for (const char* mark :
         {"<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", "<|\"|>"}) {
      Form token = tokenizer["added_tokens"].back();
      token["id"] = next++;
      token["content"] = mark;
      token["special"] = true;
      tokenizer["added_tokens"].push_back(token);
    }
    std::ofstream(to / "tokenizer.json") << tokenizer.dump();
    return to.string();
  }();
  return kFolder.c_str();
}

constexpr const char* kTrip = R"({"type":"object","$defs":{
    "tree":{"type":"object","properties":{"name":{"type":"string"},
        "sub":{"type":"array","items":{"$ref":"#/$defs/tree"}}},
        "required":["name"],"additionalProperties":false}},
  "properties":{
    "to":{"type":"string"},
    "days":{"type":"integer","minimum":1,"maximum":9},
    "code":{"type":"string","pattern":"^[A-Z]{2}$"},
    "when":{"enum":["mon","tue/wed",3,null]},
    "note":{"type":["string","null"]},
    "tree":{"$ref":"#/$defs/tree"},
    "tags":{"type":"array","items":{"type":"string","maxLength":3}},
    "few":{"type":"array","items":{"type":"integer"},"maxItems":2},
    "map":{"type":"object","additionalProperties":{"type":"number"}},
    "any":{}},
  "required":["to","days"],"additionalProperties":false})";

std::vector<Tool> trip_tools(bool strict) {
  return {{.name = "trip", .description = {}, .parameters = kTrip, .strict = strict},
          {.name = "now", .description = {}, .parameters = "", .strict = strict}};
}

// Writes '...' as a text between marks.
std::string marked(std::string text) {
  for (size_t at; (at = text.find('\'')) != text.npos;) text.replace(at, 1, kTextMark);
  return text;
}

std::string call_of(const std::string& body) {
  return "<|tool_call>call:" + marked(body) + "<tool_call|>";
}

struct Case {
  const char* body;
  const char* json;
};

constexpr Case kGood[] = {
    {"trip{days:3,to:'Köln {x}, <b>'}", R"({"days":3,"to":"Köln {x}, <b>"})"},
    {"now{}", "{}"},
    {"trip{code:'FR',days:1,note:null,to:'',when:'tue/wed'}",
     R"({"code":"FR","days":1,"note":null,"to":"","when":"tue/wed"})"},
    {"trip{days:1,note:'so',to:'x',when:3}", R"({"days":1,"note":"so","to":"x","when":3})"},
    {"trip{days:1,tags:['ab','c'],to:'x',tree:{name:'a',sub:[{name:'b'},{name:'c',sub:[]}]}}",
     R"({"days":1,"tags":["ab","c"],"to":"x",
         "tree":{"name":"a","sub":[{"name":"b"},{"name":"c","sub":[]}]}})"},
    {"trip{days:1,few:[1, 2],map:{a:1.5,b:-2},to:'x'}",
     R"({"days":1,"few":[1,2],"map":{"a":1.5,"b":-2},"to":"x"})"},
    {"trip{any:{k:[1,'x',{l:true}]},days:1,to:'x'}",
     R"({"any":{"k":[1,"x",{"l":true}]},"days":1,"to":"x"})"},
};

constexpr const char* kBad[] = {
    "trip{}",
    "trip{days:3}",
    "trip{to:'x',days:3}",
    "trip{days:0,to:'x'}",
    "trip{code:'fr',days:1,to:'x'}",
    "trip{days:1,to:'x',when:'sun'}",
    "trip{days:1,few:[1,2,3],to:'x'}",
    "trip{days:1,tags:['long'],to:'x'}",
    "trip{days:1,map:{a:'x'},to:'x'}",
    "trip{days:1,to:'x',tree:{sub:[]}}",
    "trip{days:1,more:1,to:'x'}",
    "now{a:1}",
    "fly{}",
};

std::vector<AnswerPart> parts_in(const std::string& text) {
  AnswerParser parser({.tools_as = ToolFormat::gemma4,
                       .reasoning = {},
                       .tools = std::make_shared<const std::vector<Tool>>(trip_tools(true))});
  std::vector<AnswerEvent> events;
  parser.push(text, events);
  parser.finish(events);
  AnswerParts parts;
  for (const AnswerEvent& event : events) parts.add(event);
  return parts.parts();
}

TEST(BareKeyRules, AllowWhatTheSchemaAllowsAndTheReaderReads) {
  const TestVocabulary text, tokens(folder_with_marks());
  ASSERT_TRUE(tokens.tokenizer().special_at("<|\"|>"));
  const std::vector<Tool> tools = trip_tools(true);
  for (const TestVocabulary* v : {&text, &tokens}) {
    const auto made = grammar_of_answer({.tools = tools,
                                         .choice = {.kind = ToolChoice::Kind::required, .name = {}},
                                         .format = ToolFormat::gemma4,
                                         .text = nullptr,
                                         .reasoning = {}},
                                        v->tokenizer());
    ASSERT_TRUE(made) << made.error().message;
    const auto grammar = v->vocabulary().compile(**made);
    ASSERT_TRUE(grammar) << grammar.error().message << "\n" << (*made)->text;
    for (const Case& good : kGood) {
      const std::string call = call_of(good.body);
      EXPECT_TRUE(v->takes(**grammar, call)) << call;
      EXPECT_TRUE(v->takes(**grammar, call + call)) << call;
      const auto parts = parts_in(call);
      ASSERT_EQ(parts.size(), 1u) << call;
      EXPECT_EQ(Form::parse(parts[0].text, nullptr, false), Form::parse(good.json)) << call;
    }
    for (const char* bad : kBad) EXPECT_FALSE(v->takes(**grammar, call_of(bad))) << bad;
    EXPECT_FALSE(v->takes(**grammar, "Hi"));
  }
}

TEST(BareKeyRules, ToolsThatAreNotStrictGetAnyArguments) {
  const TestVocabulary v(folder_with_marks());
  std::vector<Tool> tools = trip_tools(false);
  tools[1].strict = true;
  const auto reasoning = choose_reasoning_format("gemma4", "").value();
  const auto made = grammar_of_answer({.tools = tools,
                                       .choice = {.kind = ToolChoice::Kind::automatic, .name = {}},
                                       .format = ToolFormat::gemma4,
                                       .text = nullptr,
                                       .reasoning_start = ReasoningStart::possible,
                                       .reasoning = reasoning},
                                      v.tokenizer());
  ASSERT_TRUE(made) << made.error().message;
  const auto grammar = v.vocabulary().compile(**made);
  ASSERT_TRUE(grammar) << grammar.error().message << "\n" << (*made)->text;
  const std::string thought = "<|channel>thought\nSo { be it.\n<channel|>";
  for (const std::string& good :
       {std::string("Just < text"), call_of("trip{}"), call_of("trip{a:'x',b:[{c:null},1.5]}"),
        "I go." + call_of("trip{x:1}") + call_of("now{}"), thought + "Yes.",
        thought + call_of("now{}")})
    EXPECT_TRUE(v.takes(**grammar, good)) << good;
  for (const std::string& bad : {call_of("now{a:1}"), call_of("trip{a:x}"), call_of("trip{a:1,}"),
                                 call_of("trip{'a':1}"), std::string("<|channel>thought\nSo")})
    EXPECT_FALSE(v.takes(**grammar, bad)) << bad;
}

TEST(BareKeyRules, SchemasThatCannotBeFollowedAreRefusedByTheTool) {
  const TestVocabulary v;
  const auto refusal = [&](const std::string& parameters) {
    const std::vector<Tool> tools = {
        {.name = "f", .description = {}, .parameters = parameters, .strict = true}};
    LarkWriter lark(&v.tokenizer());
    SchemaVisits visits;
    const auto made = bare_key_rules(tools[0], ArgumentCheck::schema, lark, visits);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(refusal(kTrip), "");
  EXPECT_EQ(refusal("[]"), "the parameters of the tool f are no JSON schema of an object");
  EXPECT_EQ(refusal(R"({"anyOf":[{}]})"),
            "the parameters of the tool f are no list of properties but anyOf, and this model "
            "writes arguments one by one");
  EXPECT_EQ(refusal(R"({"properties":{"a b":{}}})"),
            "the parameters of the tool f have properties that this model cannot write");
  EXPECT_EQ(
      refusal(R"({"properties":{"a":{"type":"string","pattern":"x","maxLength":3}}})"),
      "the parameters of the tool f limit a text in a way that cannot be checked without quotes");
  std::string deep = "{}";
  for (int i = 0; i < 70; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_EQ(refusal(R"({"properties":{"a":)" + deep + "}}"),
            "the parameters of the tool f nest deeper than 64 levels");
  std::string wide = R"({"properties":{)";
  for (int i = 0; i < 70'000; ++i)
    wide += (i == 0 ? "\"a" : ",\"a") + std::to_string(i) + R"(":{"type":"integer"})";
  EXPECT_EQ(refusal(wide + "}}"),
            "the parameters of the tool f come to a grammar of too many bytes");
}

}  // namespace
}  // namespace hocket
