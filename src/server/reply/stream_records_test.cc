#include "server/reply/stream_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/reply/stream_position.h"
#include "server/reply/stream_records_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;
TEST(StreamRecords, GiveARequestToItsOwner) {
  StreamRecords streams({});
  const auto stream = streams.add(request("a"), StreamState::live);
  ASSERT_NE(stream, nullptr);
  streams.add_token(*stream, 0, 0, TokenId{5});
  streams.add_token(*stream, 0, 1, TokenId{6});
  streams.add_token(*stream, 0, 1, TokenId{9});  // it is known
  streams.add_token(*stream, 3, 0, TokenId{9});  // there is no such choice
  const auto found = streams.find("a", "ann");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->request.tokens, (Tokens{{TokenId{5}, TokenId{6}}}));
  EXPECT_EQ(found->state, StreamState::live);
  EXPECT_EQ(streams.find("a", "bob").error().code, ErrorCode::not_found);
  EXPECT_EQ(streams.find("b", "ann").error().code, ErrorCode::not_found);
  EXPECT_EQ(streams.add(request("a", "bob"), StreamState::live), nullptr);  // the id is ann's
  streams.erase("a", "bob");
  EXPECT_TRUE(streams.find("a", "ann"));
  streams.erase("a", "ann");
  EXPECT_FALSE(streams.find("a", "ann"));
  EXPECT_EQ(streams.counts().bytes, 0u);
}

TEST(StreamRecords, ForgetWhatIsTooOld) {
  StreamRecords streams({.retention = std::chrono::milliseconds(30)});
  const auto live = streams.add(request("live"), StreamState::live);
  const auto left = streams.add(request("left"), StreamState::live);
  streams.set_state(*left, StreamState::left);
  EXPECT_TRUE(streams.find("left", "ann"));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_TRUE(streams.find("live", "ann"));
  const auto gone = streams.find("left", "ann");
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("too old"));
  EXPECT_THAT(streams.find("left", "bob").error().message, HasSubstr("there is no stream"));
  streams.set_state(*left, StreamState::ended);  // a record that is gone does not come back
  EXPECT_FALSE(streams.find("left", "ann"));
  EXPECT_EQ(streams.counts().num_records, 1u);
}

TEST(StreamRecords, TheHeaviestOwnerLosesItsOldestAndEndedStreamsFirst) {
  StreamRecords streams({.max_bytes = 40'000, .max_body = 5000});
  const auto add = [&](const std::string& id, const std::string& who, StreamState state) {
    const auto stream = streams.add(request(id, who, 4000), StreamState::live);
    if (stream && state != StreamState::live) streams.set_state(*stream, state);
    return stream != nullptr;
  };
  EXPECT_FALSE(streams.add(request("large", "ann", 5001), StreamState::live));
  EXPECT_FALSE(streams.add(request("many", "ann", 1, kMaxRecordedChoices + 1), StreamState::live));
  EXPECT_TRUE(add("bob", "bob", StreamState::left));
  EXPECT_TRUE(add("1", "ann", StreamState::left));
  EXPECT_TRUE(add("2", "ann", StreamState::ended));
  EXPECT_TRUE(add("3", "ann", StreamState::left));
  EXPECT_TRUE(add("4", "ann", StreamState::left));
  EXPECT_TRUE(add("5", "ann", StreamState::live));  // ann may hold half
  EXPECT_FALSE(streams.find("2", "ann"));
  EXPECT_TRUE(add("6", "ann", StreamState::live));
  EXPECT_FALSE(streams.find("1", "ann"));
  EXPECT_TRUE(streams.find("bob", "bob"));
  for (const char* id : {"7", "8"}) EXPECT_TRUE(add(id, "ann", StreamState::live));
  EXPECT_FALSE(add("9", "ann", StreamState::live));  // all of ann's are live
  EXPECT_LE(streams.counts().bytes, 40'000u);
}

TEST(StreamRecords, AStreamThatGrowsBeyondTheLimitIsNotKept) {
  StreamRecords streams({.max_bytes = 4000});
  const auto stream = streams.add(request("a"), StreamState::live);
  ASSERT_NE(stream, nullptr);
  for (size_t i = 0; i < 1000; ++i) streams.add_token(*stream, 0, i, TokenId{1});
  EXPECT_FALSE(streams.find("a", "ann"));
  EXPECT_EQ(streams.counts().bytes, 0u);
}

TEST(StreamRecords, ARecordStaysIfTheOneThatReplacesItDoesNotFit) {
  StreamRecords streams({.max_bytes = 4000});
  ASSERT_NE(streams.add(request("a"), StreamState::left), nullptr);
  EXPECT_EQ(streams.add(request("a", "ann", 3000), StreamState::live), nullptr);
  EXPECT_TRUE(streams.find("a", "ann"));
  EXPECT_NE(streams.add(request("a", "ann", 1000), StreamState::live), nullptr);
  EXPECT_EQ(streams.find("a", "ann")->request.body.size(), 1000u);
  EXPECT_EQ(streams.counts().num_records, 1u);
}

TEST(StreamRecords, ARecordThatIsRemovedHoldsNoTextAndNoTokens) {
  StreamRecords streams({});
  const auto stream = streams.add(request("a", "ann", 5000, 2), StreamState::live);
  ASSERT_NE(stream, nullptr);
  streams.add_token(*stream, 1, 0, TokenId{5});
  streams.erase(*stream);
  EXPECT_EQ(stream->request.body.capacity(), std::string().capacity());
  ASSERT_EQ(stream->request.tokens.size(), 2u);
  EXPECT_EQ(stream->request.tokens[1].capacity(), 0u);
}

TEST(RecordedRequest, GoesThroughItsText) {
  RecordedRequest sent = request("a", "ann", 10, 2);
  sent.body = "{\"prompt\": \"n\xc3\xa9\\n\"}";
  sent.routing_key = "r";
  sent.client = ~uint64_t{0};
  sent.event_ids = true;
  sent.num_takeovers = 3;
  sent.tokens = {{TokenId{1}, TokenId{2}}, {}};
  const auto got = read_recorded_request(parse_json(to_text(sent)).value(), "ann");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->identity.id, "a");
  EXPECT_EQ(got->body, sent.body);
  EXPECT_EQ(got->tokens, sent.tokens);
  EXPECT_EQ(got->client, sent.client);
  EXPECT_TRUE(got->event_ids);
  EXPECT_EQ(got->num_takeovers, 3u);
  for (const char* wrong : {"{}", "[]", R"({"answer":1})"})
    EXPECT_FALSE(read_recorded_request(parse_json(wrong).value(), "ann")) << wrong;
}

TEST(StreamPosition, IsReadFromTheIdOfAnEvent) {
  const std::vector<uint32_t> next = {8, 0, 13};
  EXPECT_EQ(event_id("cmpl-5", next), "cmpl-5:7,-,12");
  const auto read = read_event_id("cmpl-5:7,-,12", 16);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->answer_id, "cmpl-5");
  EXPECT_EQ(read->position.next, next);
  EXPECT_FALSE(read_event_id("cmpl-5:7,-,12", 2));
  for (const char* wrong :
       {"", ":", "a", "a:", ":1", "a:1,", "a:,1", "a:1,,2", "a:x", "a:-1", "a: 1"})
    EXPECT_FALSE(read_event_id(wrong, 16)) << wrong;
}

TEST(StreamPosition, LeavesOutTheEventsThatTheClientHas) {
  std::vector<uint32_t> next = {0, 0};
  const StreamPosition has{.next = {1, 2}};
  EXPECT_EQ(number_events({"data: 1\n\ndata: 2\n\n"}, next, has, ""), "data: 2\n\n");
  EXPECT_EQ(number_events({"data: 3\n\n", 1}, next, has, "a"), "");
  EXPECT_EQ(number_events({"data: 4\n\n", 1, 1}, next, has, "a"), "");
  EXPECT_EQ(number_events({"data: 5\n\n", 1, 6}, next, has, "a"), "data: 5\nid: a:1,6\n\n");
}

}  // namespace
}  // namespace hocket
