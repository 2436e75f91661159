#include "server/apis/apis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/apis/anthropic/messages_api.h"
#include "server/apis/openai/openai_errors.h"
#include "server/apis/responses/responses_api.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

// Pages, limits and clients emit APIs apart by these.
TEST(Apis, NamesPathsAndPrefixesDiffer) {
  for (const Api* a : all_apis())
    for (const Api* b : all_apis())
      if (a != b) {
        EXPECT_NE(a->name, b->name);
        EXPECT_NE(a->id_prefix, b->id_prefix);
        EXPECT_FALSE(a->path.starts_with(b->path)) << a->path;
      }
}

// RequestContext::store is of the type that this API derives.
TEST(Apis, OneKeepsAnswers) {
  EXPECT_EQ(std::ranges::count_if(all_apis(), [](const Api* api) { return api->keeps_answers; }),
            1);
}

TEST(Apis, EachNamesItsBodiesWithExamples) {
  for (const Api* api : all_apis()) {
    ASSERT_FALSE(api->bodies().empty()) << api->name;
    EXPECT_EQ(api->bodies().front().path, api->path);
    EXPECT_EQ(api->bodies().front().answer, nullptr) << api->name;
    for (const ApiBody& body : api->bodies()) EXPECT_FALSE(body.examples.empty()) << body.path;
  }
}

TEST(Apis, EachHasItsErrors) {
  EXPECT_EQ(&error_format_of("/v1/messages/count_tokens"), kMessagesApi.errors);
  EXPECT_EQ(&error_format_of("/v1/responses"), kResponsesApi.errors);
  EXPECT_EQ(&error_format_of("/v1/chat/completions"), &kOpenAiErrors);
  EXPECT_EQ(&error_format_of("/metrics"), &kOpenAiErrors);
  const Error e = error(ErrorCode::loading, "not yet");
  const auto body = nlohmann::json::parse(kMessagesApi.errors->body(e));
  EXPECT_EQ(body["type"], "error");
  EXPECT_EQ(body["error"]["type"], "overloaded_error");
  EXPECT_EQ(body["error"]["message"], "not yet");
  EXPECT_EQ(kResponsesApi.errors->body(e), kOpenAiErrors.body(e));
  EXPECT_TRUE(kOpenAiErrors.events(e).ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(kMessagesApi.errors->events(e).starts_with("event: error\ndata: {\"type\""));
  SseReader reader;
  const auto events = reader.feed(kResponsesApi.errors->events(e));
  ASSERT_EQ(events.size(), 1u);
  const auto event = nlohmann::json::parse(events[0]);
  EXPECT_EQ(event["type"], "error");
  EXPECT_EQ(event["code"], "loading");
}

}  // namespace
}  // namespace hocket
