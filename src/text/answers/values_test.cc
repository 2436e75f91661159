// Tests which JSON, Python literals and values without quotes are read, repaired and refused.
#include <gtest/gtest.h>

#include "text/answers/bare_key_value.h"
#include "text/answers/json_copier.h"
#include "text/answers/mark_finder.h"
#include "text/answers/python_literal.h"
#include "text/answers/typed_value.h"

namespace hocket {
namespace {

// Returns the copied value; "wrong", or "cut" if it is not whole.
std::string copied(std::string_view text) {
  JsonCopier copier;
  std::string out;
  for (const char c : text) {
    const auto step = copier.step(c, out);
    if (step == JsonCopier::Step::wrong) return "wrong";
    if (step == JsonCopier::Step::over) return out + "|";
  }
  return copier.whole() ? out : "cut";
}

TEST(JsonCopier, CopiesWhatIsJson) {
  for (const char* text :
       {R"({"a": [1, -2.5e+3, 0, true, false, null, "x", {}, []], "b": {"c": "\u00e4\n\/"}})", "0",
        "-0.5", "1e5", "\"\"", "[]", "{}", R"("\ud83d\ude00")"})
    EXPECT_EQ(copied(text), text);
  EXPECT_EQ(copied("  [1 , 2 ]"), "[1 , 2 ]");
  EXPECT_EQ(copied("12,"), "12|");
}

TEST(JsonCopier, RefusesWhatIsNot) {
  for (const char* text :
       {"{a: 1}", "[1,]", "{\"a\": 1,}", "01", "+1", ".5", "1.e", "tru!", "'a'", "{\"a\" 1}",
        "[1 2]", "{1: 2}", "nul1", "\"\\u12G4\"", "}", ",", "--1", "{} {}", "NaN"}) {
    const std::string out = copied(text);
    EXPECT_TRUE(out == "wrong" || out.ends_with('|')) << text << " -> " << out;
  }
  for (const char* text : {"", "{", "[1", "\"a", "-", "1.", "1e", "tr", "{\"a\":"})
    EXPECT_EQ(copied(text), "cut") << text;
  EXPECT_EQ(copied(std::string(JsonCopier::kMaxDepth, '[')), "cut");
  EXPECT_EQ(copied(std::string(JsonCopier::kMaxDepth + 1, '[')), "wrong");
}

TEST(JsonCopier, ForgivesWhatModelsWrite) {
  EXPECT_EQ(copied("\"a\nb\tc\x01\""), R"("a\nb\tc\u0001")");
  EXPECT_EQ(copied(R"("\d \' \x")"), R"("\\d ' \\x")");
  EXPECT_EQ(copied(R"("\ud83d x \ude00\ud83d")"), R"("\ufffd x \ufffd\ufffd")");
  EXPECT_EQ(copied(R"("\ud83d\ud83d\ude00")"), R"("\ufffd\ud83d\ude00")");
}

TEST(MarkFinder, HoldsBackOnlyWhatMayBecomeAMark) {
  MarkFinder finder({"</a>", "\n</a>", "<<b>"});
  std::string free;
  std::string found;
  for (const char c : std::string_view("x</a>\n\n</a></ab<<<b><")) {
    const int mark = finder.step(c, free);
    if (mark != MarkFinder::kNone) {
      free += '|';
      found += static_cast<char>('0' + mark);
    }
  }
  finder.flush(free);
  EXPECT_EQ(free, "x|\n|</ab<|<");
  EXPECT_EQ(found, "012");
}

TEST(PythonLiteral, BecomesJson) {
  const auto json = [](std::string_view text) { return python_to_json(text).value_or("none"); };
  EXPECT_EQ(json("'it''s'"), R"("its")");
  EXPECT_EQ(json(R"("a\tb\x41\u00e4\U0001F600\101\q")"), "\"a\\tbAä😀A\\\\q\"");
  EXPECT_EQ(json("'''a\n'b''''"), "none");
  EXPECT_EQ(json("'''a\n'b' '''"), R"("a\n'b' ")");
  EXPECT_EQ(json(R"(r'\d')"), R"("\\d")");
  EXPECT_EQ(json(" [1, 2.50, -3, 1_000, .5, 5., 1e3, 0x1F] "),
            "[1, 2.50, -3, 1000, 0.5, 5.0, 1e3, 31]");
  EXPECT_EQ(json("{'a': (1, 2), \"b\": (3), 'c': (4,), 'd': ()}"),
            R"({"a": [1, 2], "b": 3, "c": [4], "d": []})");
  EXPECT_EQ(json("[True, False, None, true, null,]"), "[true, false, null, true, null]");
  for (const char* text :
       {"",          "x",     "f(1)", "{1: 2}", "{1, 2}",  "[1 2]",           "'a", "[1",  "1j",
        "b'a'",      "01x",   "[,]",  "'a' 1",  "{'a' 1}", "{'a': 1 'b': 2}", "0x", "1__", "--1",
        "lambda: 1", "'\\x1'"})
    EXPECT_EQ(json(text), std::string_view(text) == "1__" ? "1" : "none") << text;
  EXPECT_EQ(json(std::string(100, '[') + std::string(100, ']')), "none");
}

TEST(BareKeyValue, BecomesJson) {
  const auto json = [](std::string text) {
    for (size_t at; (at = text.find('~')) != text.npos;) text.replace(at, 1, kTextMark);
    return bare_keys_to_json(text).value_or("none");
  };
  EXPECT_EQ(json("{}"), "{}");
  EXPECT_EQ(json(" [ ] "), "[]");
  EXPECT_EQ(json("{a:~x, }~,~b c~:[1,-2.5e3,true],d:null}"),
            R"({"a": "x, }", "b c": [1, -2.5e3, true], "d": null})");
  EXPECT_EQ(json("[old town~,new,~~]"), R"(["old town", "new", ""])");
  EXPECT_EQ(json(R"({"a": 'it\'s', b="]",c:None,})"), R"({"a": "it's", "b": "]", "c": null})");
  EXPECT_EQ(json("{url:http://x.org/?q}"), R"({"url": "http://x.org/?q"})");
  for (const char* bad : {"", "5", "~x~", "{a:1]", "[{a:1]}", "{a:}", "{:1}", "[1 {}]", "{a}",
                          "[~x", "{\"a:1}", "{a:1}}"})
    EXPECT_EQ(json(bad), "none") << bad;
  EXPECT_NE(json(std::string(60, '[') + std::string(60, ']')), "none");
  EXPECT_EQ(json(std::string(70, '[') + std::string(70, ']')), "none");
}

TEST(TypedValue, FollowsTheSchema) {
  const ParameterKinds kinds(R"({"$defs":{"n":{"type":"integer"},
      "loop":{"$ref":"#/$defs/loop"}},"properties":{
      "s":{"type":"string"},"i":{"type":"integer"},"b":{"type":"boolean"},"o":{"type":"object"},
      "l":{"type":"array"},"sn":{"type":["string","null"]},"e":{"enum":[1,"a"]},
      "any":{"anyOf":[{"type":"number"},{"type":"boolean"}]},"ref":{"$ref":"#/$defs/n"},
      "loop":{"$ref":"#/$defs/loop"},"far":{"$ref":"#/nowhere/x"},"open":{"description":"d"},
      "p":{"properties":{}}}})");
  const auto typed = [&](const char* name, std::string_view raw) {
    return typed_json(raw, kinds.of(name, ValueKinds::only_string()));
  };
  EXPECT_EQ(typed("s", "42"), R"("42")");
  EXPECT_EQ(typed("s", " null\n"), R"(" null\n")");
  EXPECT_EQ(typed("i", " 42\n"), "42");
  EXPECT_EQ(typed("i", "many"), R"("many")");
  EXPECT_EQ(typed("b", "True"), "true");
  EXPECT_EQ(typed("b", "FALSE"), "false");
  EXPECT_EQ(typed("b", "1"), R"("1")");
  EXPECT_EQ(typed("o", R"({"a": 1})"), R"({"a": 1})");
  EXPECT_EQ(typed("o", "{'a': None}"), R"({"a": null})");
  EXPECT_EQ(typed("o", "[1]"), R"("[1]")");
  EXPECT_EQ(typed("l", "['x']"), R"(["x"])");
  EXPECT_EQ(typed("sn", "null"), "null");
  EXPECT_EQ(typed("sn", "nulls"), R"("nulls")");
  EXPECT_EQ(typed("e", "1"), "1");
  EXPECT_EQ(typed("e", "a"), R"("a")");
  EXPECT_EQ(typed("any", "2.5"), "2.5");
  EXPECT_EQ(typed("ref", "7"), "7");
  for (const char* name : {"loop", "far", "open", "missing"}) EXPECT_EQ(typed(name, "7"), R"("7")");
  EXPECT_EQ(typed("p", "{}"), "{}");
  EXPECT_EQ(typed_json("", ValueKinds::any()), R"("")");
  EXPECT_EQ(typed_json("free text", ValueKinds::any()), R"("free text")");
}

// Ten references lead from each of sixteen schemas to the next: 10^16 paths in all.
TEST(TypedValue, ReferencesAreFollowedForAWhileOnly) {
  nlohmann::json schema = {
      {"properties", {{"a", {{"$ref", "#/$defs/0"}}}, {"b", {{"type", "null"}}}}}};
  for (int i = 0; i < 16; ++i)
    schema["$defs"][std::to_string(i)]["anyOf"] =
        nlohmann::json(10, {{"$ref", "#/$defs/" + std::to_string(i + 1)}});
  schema["$defs"]["16"]["type"] = "integer";
  const ParameterKinds kinds(schema.dump());
  EXPECT_EQ(kinds.of("a", ValueKinds::any()), ValueKinds::any());
  EXPECT_EQ(kinds.of("b", ValueKinds::only_string()), ValueKinds::only_string());
  EXPECT_EQ(ParameterKinds("no JSON").of("a", ValueKinds::any()), ValueKinds::any());
}

TEST(TypedValue, ManySchemasShareTheirVisits) {
  nlohmann::json circular;  // has ten references back to itself
  circular["properties"]["a"]["anyOf"] = nlohmann::json(10, {{"$ref", "#/properties/a"}});
  SchemaVisits visits;
  const ParameterKinds plain(R"({"properties":{"a":{"type":["integer","null"]}}})", visits);
  EXPECT_FALSE(visits.used_up());
  EXPECT_EQ(plain.of("a", ValueKinds::any()), (ValueKinds{.number = true, .null = true}));
  const ParameterKinds first(circular.dump(), visits);
  EXPECT_TRUE(visits.used_up());
  const ParameterKinds late(R"({"properties":{"a":{"type":"integer"}}})", visits);
  EXPECT_EQ(late.of("a", ValueKinds::any()), ValueKinds::any());
}

}  // namespace
}  // namespace hocket
