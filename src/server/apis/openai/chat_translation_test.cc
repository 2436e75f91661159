#include "server/apis/openai/chat_translation.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

Error said(std::string param, std::string message) {
  const FieldNames names = {{"messages", "input"}, {".function", ""}, {".parameters", ".schema"}};
  return with_client_field_names(
      Error{ErrorCode::invalid_request, std::move(message), "", std::move(param)}, names);
}

TEST(ChatTranslation, ErrorsSpeakOfTheClientsFields) {
  EXPECT_EQ(said("messages", "messages must hold").param, "input");
  EXPECT_EQ(said("messages[3].content", "messages[3].content is missing").message,
            "input[3].content is missing");
  EXPECT_EQ(said("tools[1].function.parameters.a", "x").param, "tools[1].schema.a");
  EXPECT_EQ(said("messages_", "x").param, "messages_");
  EXPECT_EQ(said("", "messages are lost").message, "messages are lost");
}

TEST(ChatTranslation, ExtensionsArePassedAsTheyAre) {
  const Json body = Json::parse(R"({"min_p":0.5,"seed":null,"rid":7,"other":1})");
  Fields fields(body);
  Json chat = Json::object();
  pass_extensions(fields, chat);
  EXPECT_EQ(chat, Json::parse(R"({"min_p":0.5,"rid":7})"));
  EXPECT_EQ(fields.finish().error().param, "other");
}

}  // namespace
}  // namespace hocket
