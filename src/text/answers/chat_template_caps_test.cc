// Tests the capabilities of templates of several families.
#include "text/answers/chat_template_caps.h"
#include "base/source_dir_testing.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

ChatTemplate compiled(std::string_view source) {
  return ChatTemplate::from_source(source, nullptr).value();
}

// Templates for one call, as families write them, cut down to what these tests need.
constexpr const char* kObject =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% for c in "
    "m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
constexpr const char* kText =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '```json\\n' + "
    "c.function.arguments + '\\n```' }}{% endfor %}{% endfor %}";
constexpr const char* kShort =
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% for c in "
    "m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{{ "
    "c.function.arguments | tojson }}{{ c.id }}{% endfor %}{% if m.tool_call_id %}{{ "
    "m.tool_call_id }}{% endif %}{% endfor %}";

TEST(ChatTemplateCaps, AreFoundByRendering) {
  const ChatTemplateCaps object = caps_of(compiled(kObject));
  EXPECT_TRUE(object.shows_tools);
  EXPECT_FALSE(object.arguments_as_text);
  EXPECT_FALSE(object.short_ids);
  const ChatTemplateCaps text = caps_of(compiled(kText));
  EXPECT_FALSE(text.shows_tools);
  EXPECT_TRUE(text.arguments_as_text);
  const ChatTemplateCaps with_short_ids = caps_of(compiled(kShort));
  EXPECT_TRUE(with_short_ids.shows_tools);
  EXPECT_TRUE(with_short_ids.short_ids);
  EXPECT_FALSE(caps_of(compiled("{{ messages[0].content }}")).shows_tools);
}

// Qwen3.5's template in some folders also takes text, which it prints as it is.
constexpr const char* kParameters =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.function.arguments is string "
    "%}{{ c.function.arguments }}{% else %}{% for k, v in c.function.arguments | items "
    "%}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}{% endif %}{% endfor %}{% endfor %}";
constexpr const char* kPrinted =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor "
    "%}{% endfor %}";

TEST(ChatTemplateCaps, ArgumentsWrittenOutAreObjects) {
  EXPECT_FALSE(caps_of(compiled(kParameters)).arguments_as_text);
  EXPECT_TRUE(caps_of(compiled(kPrinted)).arguments_as_text);
}

// As Gemma 4 writes messages, cut down.
constexpr const char* kBareKeys =
    "{% macro value(v) %}{% if v is string %}{{ '<|\"|>' + v + '<|\"|>' }}{% elif v is mapping "
    "%}{{ '{' }}{% for k, w in v | dictsort %}{{ k }}:{{ value(w) }}{{ ',' if not loop.last }}{% "
    "endfor %}{{ '}' }}{% elif v is boolean %}{{ 'true' if v else 'false' }}{% else %}{{ v }}{% "
    "endif %}{% endmacro %}{% for t in tools or [] %}<|tool>declaration:{{ t.function.name "
    "}}<tool|>{% endfor %}{% for m in messages %}{% set thought = m.get('reasoning') or "
    "m.get('reasoning_content') %}{% if thought and m.get('tool_calls') %}<|channel>thought\n{{ "
    "thought }}\n<channel|>{% endif %}{% for c in m.tool_calls or [] %}<|tool_call>call:{{ "
    "c.function.name }}{{ value(c.function.arguments) }}<tool_call|>{% endfor %}{% endfor %}";

TEST(ChatTemplateCaps, OfBareKeys) {
  const ChatTemplateCaps caps = caps_of(compiled(kBareKeys));
  EXPECT_TRUE(caps.shows_tools);
  EXPECT_FALSE(caps.arguments_as_text);
  EXPECT_FALSE(caps.reads_thinking);
  EXPECT_FALSE(caps.ids_name_functions);
  EXPECT_FALSE(caps.short_ids);
  ChatInput chat;
  chat.messages = nlohmann::ordered_json::array(
      {{{"role", "assistant"},
        {"reasoning_content", "Hm."},
        {"tool_calls",
         {{{"id", "1"},
           {"function", {{"name", "f"}, {"arguments", R"({"b":{"c":true},"a":"x"})"}}}}}}}});
  fit_messages(chat, caps);
  const auto prompt = compiled(kBareKeys).render(chat);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(prompt->text(),
            "<|channel>thought\nHm.\n<channel|><|tool_call>call:f{a:<|\"|>x<|\"|>,b:{c:true}}"
            "<tool_call|>");
}

TEST(ChatTemplateCaps, OfRealTemplates) {
  const std::filesystem::path root = source_dir();
  const auto tokenizer = Tokenizer::load(root / "models/hocket-tiny-qwen3-moe").value();
  const auto bundled = ChatTemplate::load(root / "models/hocket-tiny-qwen3-moe", tokenizer);
  const ChatTemplateCaps own = caps_of(bundled.value().value());
  EXPECT_TRUE(own.shows_tools);
  EXPECT_FALSE(own.arguments_as_text);
  const auto golden = [&](const char* name) {
    return caps_of(ChatTemplate::from_file(root / "tests/golden/chat" / name, tokenizer).value());
  };
  EXPECT_TRUE(golden("llama3.jinja").shows_tools);
  EXPECT_FALSE(golden("llama3.jinja").arguments_as_text);
  EXPECT_TRUE(golden("chatml_tools.jinja").shows_tools);
  EXPECT_FALSE(golden("deepseek_v3.jinja").shows_tools);
  EXPECT_FALSE(golden("deepseek_v3.jinja").arguments_as_text);
  EXPECT_TRUE(golden("mistral.jinja").short_ids);
}

ChatInput conversation(const nlohmann::ordered_json& arguments) {
  ChatInput chat;
  chat.messages = {
      {{"role", "user"}, {"content", "x"}},
      {{"role", "assistant"},
       {"tool_calls",
        {{{"id", "call_1"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}}}},
      {{"role", "tool"}, {"tool_call_id", "call_1"}, {"content", "y"}}};
  return chat;
}

TEST(ChatTemplateCaps, CallsAreFitted) {
  const auto fitted = [](const nlohmann::ordered_json& arguments, ChatTemplateCaps caps) {
    ChatInput chat = conversation(arguments);
    fit_messages(chat, caps);
    return chat.messages;
  };
  const nlohmann::ordered_json object = {{"b", 1}, {"a", "ä"}};
  const auto arguments = [](const auto& messages) {
    return messages[1]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments(fitted(object, {})), object);
  EXPECT_EQ(arguments(fitted(R"({"b": 1, "a": "ä"})", {})), object);
  EXPECT_EQ(arguments(fitted("no JSON", {})), "no JSON");
  EXPECT_EQ(arguments(fitted("[1]", {})), "[1]");
  const std::string deep = R"({"a":)" + std::string(400'000, '[') + std::string(400'000, ']') + "}";
  EXPECT_EQ(arguments(fitted(deep, {})), deep) << "too deep to be an object";
  EXPECT_EQ(arguments(fitted(object, {.arguments_as_text = true})), R"({"b":1,"a":"ä"})");
  EXPECT_EQ(arguments(fitted(R"({"b":  1})", {.arguments_as_text = true})), R"({"b":  1})");
  const auto shortened = fitted(object, {.short_ids = true});
  const std::string id = shortened[1]["tool_calls"][0]["id"];
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(shortened[2]["tool_call_id"], id);
  const auto prompt = compiled(kShort).render([&] {
    ChatInput chat = conversation(object);
    fit_messages(chat, caps_of(compiled(kShort)));
    return chat;
  }());
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_NE(prompt->text().find(id + id), std::string::npos);
}

// As Kimi K2 and gpt-oss write messages, cut down.
constexpr const char* kIdsOnly =
    "{{ tools | tojson }}{% for m in messages %}{% for c in m.tool_calls or [] %}[{{ c.id }}]{{ "
    "c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}{{ m.name }} of ({{ "
    "m.tool_call_id }}){% endif %}{% endfor %}";
constexpr const char* kThinking =
    "{% for m in messages %}{% if m.thinking %}{% if m.content and m.tool_calls %}{{ "
    "raise_exception('both') }}{% endif %}({{ m.thinking }}){% endif %}{{ m.content }}{% for c in "
    "m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% "
    "endfor %}";

TEST(ChatTemplateCaps, IdsNameTheFunctionWhereNothingElseDoes) {
  EXPECT_FALSE(caps_of(compiled(kObject)).ids_name_functions);
  EXPECT_FALSE(caps_of(compiled(kThinking)).ids_name_functions);
  const ChatTemplateCaps caps = caps_of(compiled(kIdsOnly));
  EXPECT_TRUE(caps.ids_name_functions);
  const auto call = [](const nlohmann::ordered_json& id, const char* name) {
    return nlohmann::ordered_json(
        {{"id", id}, {"function", {{"name", name}, {"arguments", {{"a", 1}}}}}});
  };
  const auto answer = [](const char* id) {
    return nlohmann::ordered_json({{"role", "tool"}, {"tool_call_id", id}, {"content", "."}});
  };
  ChatInput chat;
  chat.messages = {
      {{"role", "assistant"}, {"tool_calls", {call("call_1", "f"), call("functions.g:7", "g")}}},
      answer("call_1"),
      answer("functions.g:7"),
      {{"role", "assistant"},
       {"tool_calls", {call("call_1", "g"), call(nullptr, "f"), call("functions.g:x", "g")}}},
      answer("call_1"),
      answer("unknown")};
  fit_messages(chat, caps);
  const auto prompt = compiled(kIdsOnly).render(chat);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(prompt->text(),
            "null[functions.f:0]{\"a\": 1}[functions.g:7]{\"a\": 1} of (functions.f:0) of "
            "(functions.g:7)[functions.g:2]{\"a\": 1}[functions.f:3]{\"a\": "
            "1}[functions.g:4]{\"a\": 1} of (functions.g:2) of (unknown)");
}

TEST(ChatTemplateCaps, ALongNameStandsInNoId) {
  ChatInput chat;
  for (const size_t size : {256, 257})
    chat.messages.push_back(
        {{"role", "assistant"},
         {"tool_calls",
          {{{"id", "c"}, {"function", {{"name", std::string(size, 'f')}, {"arguments", "{}"}}}}}}});
  fit_messages(chat, {.ids_name_functions = true});
  EXPECT_EQ(chat.messages[0]["tool_calls"][0]["id"], "functions." + std::string(256, 'f') + ":0");
  EXPECT_EQ(chat.messages[1]["tool_calls"][0]["id"], "c");
}

TEST(ChatTemplateCaps, ReasoningLiesWhereTheTemplateReadsThem) {
  EXPECT_FALSE(caps_of(compiled(kObject)).reads_thinking);
  EXPECT_FALSE(caps_of(compiled("{% for m in messages %}{{ m.reasoning_content }}{% endfor %}"))
                   .reads_thinking);
  const ChatTemplateCaps caps = caps_of(compiled(kThinking));
  EXPECT_TRUE(caps.reads_thinking);
  const auto prompt_of = [&](nlohmann::ordered_json message) {
    ChatInput chat;
    chat.messages = nlohmann::ordered_json::array({std::move(message)});
    fit_messages(chat, caps);
    const auto prompt = compiled(kThinking).render(chat);
    return prompt ? std::string(prompt->text()) : prompt.error().message;
  };
  const nlohmann::ordered_json calls = {
      {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", {{"a", 1}}}}}}};
  EXPECT_EQ(prompt_of({{"content", "Hi"}, {"reasoning_content", "Hm"}}), "(Hm)Hi");
  EXPECT_EQ(prompt_of({{"content", "Hi"}, {"reasoning", "Hm"}}), "(Hm)Hi");
  EXPECT_EQ(prompt_of({{"content", "Hi"}, {"thinking", "A"}, {"reasoning_content", "B"}}), "(A)Hi");
  EXPECT_EQ(prompt_of({{"content", "Hi"}, {"reasoning_content", "Hm"}, {"tool_calls", calls}}),
            "(Hm\nHi)f{\"a\": 1}");
  EXPECT_EQ(prompt_of({{"content", nullptr}, {"reasoning_content", "Hm"}, {"tool_calls", calls}}),
            "(Hm)f{\"a\": 1}");
}

}  // namespace
}  // namespace hocket
