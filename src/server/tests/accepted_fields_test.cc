#include "server/accepted_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "server/endpoints.h"
#include "server/http/field_recorder.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

const Json& fields_of(std::string_view path) {
  static const Json table = accepted_fields();
  for (const Json& one : table)
    if (one["path"] == path) return one["fields"];
  ADD_FAILURE() << path;
  return table;
}

TEST(AcceptedFields, TellsTheKindAndTheLimitsOfEachField) {
  const Json& chat = fields_of("/v1/chat/completions");
  EXPECT_EQ(chat["temperature"], (Json{{"kind", "number"}, {"low", 0.0}, {"high", 2.0}}));
  EXPECT_EQ(chat["stream"], (Json{{"kind", "boolean"}}));
  EXPECT_EQ(chat["n"], (Json{{"kind", "integer"}, {"low", 1}, {"high", 64}}));
  EXPECT_EQ(chat["metadata"], (Json{{"kind", "ignored"}}));
  EXPECT_EQ(chat["functions"], (Json{{"kind", "refused"}}));
  EXPECT_EQ(fields_of("/v1/responses")["input"], (Json{{"kind", "any"}}));  // two parsers read it
}

TEST(AcceptedFields, FindsFieldsOfFields) {
  const Json& chat = fields_of("/v1/chat/completions");
  for (const char* path : {"stream_options.include_usage", "response_format.json_schema.schema",
                           "structured_outputs.regex"})
    EXPECT_TRUE(chat.contains(path)) << path;
  EXPECT_TRUE(fields_of("/v1/responses").contains("text.format"));
  EXPECT_TRUE(fields_of("/v1/messages").contains("thinking.budget_tokens"));
  EXPECT_TRUE(fields_of("/generate").contains("sampling_params.stop_regex"));
}

// POSTs whose handlers do not read the body, or read a file's name alone (/slots/).
constexpr std::string_view kWithoutBody[] = {"/flush_cache",
                                             "/stop_profile",
                                             "/stop_expert_distribution_record",
                                             "/dump_expert_distribution_record",
                                             "/v1/responses/",  // cancels an answer
                                             "/sessions/",
                                             "/slots/"};

TEST(AcceptedFields, HasEveryPathWhoseBodyIsRead) {
  const Json table = accepted_fields();
  Endpoints endpoints({});  // only the list of its routes is used
  for (const Route& route : endpoints.routes()) {
    if (!route.methods.contains("POST") || std::ranges::count(kWithoutBody, route.path) > 0)
      continue;
    EXPECT_TRUE(std::ranges::any_of(table, [&](const Json& one) {
      return one["path"] == route.path;
    })) << route.path;
  }
}

// If a body is translated for another parser, that parser reads other field names; they are not in
// the table.
TEST(AcceptedFields, AreThoseOfTheClientsOwnBody) {
  const Json& messages = fields_of("/v1/messages");
  EXPECT_FALSE(messages.contains("stop"));
  EXPECT_EQ(messages["temperature"]["kind"], "number");  // passed on, and checked there
}

TEST(AcceptedFields, ExamplesAreAnswered) {
  TestServer server;
  for (const Json& one : accepted_fields())
    for (const Json& body : one["examples"]) {
      const std::string path = one["path"];
      if (path == "/start_profile" || path == "/disaggregation_mode" || path == "/scale_ranks" ||
          path.ends_with("_record"))
        continue;  // not in the fake model
      const TestAnswer answer = server.ask("POST", path, body.dump());
      EXPECT_EQ(answer.status, 200) << path << " " << answer.body;
    }
}

TEST(FieldRecorder, NotesNothingWhenItIsGone) {
  const Json body = {{"a", 1}};
  {
    const FieldRecorder recorder(body);
    Fields(body).get("a");
    EXPECT_EQ(recorder.known().size(), 1u);
  }
  EXPECT_EQ(FieldRecorder::current(), nullptr);
}

}  // namespace
}  // namespace hocket
