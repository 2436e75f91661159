// Tests the traits of templates of several families.
#include "text/answers/template_traits.h"

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

TEST(TemplateTraits, AreFoundByRendering) {
  const TemplateTraits object = traits_of(compiled(kObject));
  EXPECT_TRUE(object.shows_tools);
  EXPECT_FALSE(object.arguments_as_text);
  EXPECT_FALSE(object.short_ids);
  const TemplateTraits text = traits_of(compiled(kText));
  EXPECT_FALSE(text.shows_tools);
  EXPECT_TRUE(text.arguments_as_text);
  const TemplateTraits with_short_ids = traits_of(compiled(kShort));
  EXPECT_TRUE(with_short_ids.shows_tools);
  EXPECT_TRUE(with_short_ids.short_ids);
  EXPECT_FALSE(traits_of(compiled("{{ messages[0].content }}")).shows_tools);
}

TEST(TemplateTraits, OfRealTemplates) {
  const std::filesystem::path root = HOCKET_SOURCE_DIR;
  const auto tokenizer = Tokenizer::load(root / "models/hocket-tiny-qwen3-moe").value();
  const auto bundled = ChatTemplate::load(root / "models/hocket-tiny-qwen3-moe", tokenizer);
  const TemplateTraits own = traits_of(bundled.value().value());
  EXPECT_TRUE(own.shows_tools);
  EXPECT_FALSE(own.arguments_as_text);
  const auto golden = [&](const char* name) {
    return traits_of(ChatTemplate::from_file(root / "tests/golden/chat" / name, tokenizer).value());
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

TEST(TemplateTraits, CallsAreFitted) {
  const auto fitted = [](const nlohmann::ordered_json& arguments, TemplateTraits traits) {
    ChatInput chat = conversation(arguments);
    fit_calls(chat, traits);
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
    fit_calls(chat, traits_of(compiled(kShort)));
    return chat;
  }());
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_NE(prompt->text().find(id + id), std::string::npos);
}

}  // namespace
}  // namespace hocket
