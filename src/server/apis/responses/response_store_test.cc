#include "server/apis/responses/response_store.h"

#include <gtest/gtest.h>

#include "server/apis/responses/responses_request.h"

namespace hocket {
namespace {

ResponseStore::Record record(const ResponseStore& store, size_t bytes,
                             std::vector<ResponseStore::TextPtr> turns = {}) {
  ResponseStore::Record r;
  r.body = store.keep(std::string(bytes, 'b'));
  r.turns = std::move(turns);
  r.output = store.keep("[]");
  r.who = "me";
  return r;
}

TEST(ResponseStore, KeepsWhatWasUsedLast) {
  ResponseStore store({.max_bytes = 5000, .max_count = 100});
  for (const char* id : {"a", "b", "c"}) store.put(id, record(store, 1000));
  EXPECT_NE(store.find("a", "me"), nullptr);  // it was used, so b is the oldest
  store.put("d", record(store, 1000));
  EXPECT_EQ(store.find("b", "me"), nullptr);
  EXPECT_NE(store.find("a", "me"), nullptr);
  EXPECT_LE(store.counts().bytes, 5000u);
  EXPECT_EQ(store.counts().num_records, 3u);
}

TEST(ResponseStore, SharedTurnsCountOnceAndAsLongAsTheyLive) {
  ResponseStore store({.max_bytes = 1 << 20, .max_count = 100});
  const auto first = store.keep(std::string(10000, 'x'));
  store.put("a", record(store, 10, {first}));
  store.put("b", record(store, 10, {first, first}));
  const size_t both = store.counts().bytes;
  EXPECT_LT(both, 12000u);
  store.erase("a", "me");
  EXPECT_GT(store.counts().bytes, 10000u);  // b shares its turns
  store.erase("b", "me");
  EXPECT_GT(store.counts().bytes, 10000u);  // the test holds a turn, as a request under way does
}

// Such bytes are the list of turns that each answer of a conversation has.
TEST(ResponseStore, WhatIsKeptBesideATextCounts) {
  ResponseStore store({.max_bytes = 5000, .max_count = 100});
  auto text = store.keep("x", 3000);
  EXPECT_GT(store.counts().bytes, 3000u);
  text.reset();
  EXPECT_EQ(store.counts().bytes, 0u);
}

TEST(ResponseStore, NothingOutgrowsTheLimit) {
  ResponseStore store({.max_bytes = 5000, .max_count = 2});
  store.put("big", record(store, 6000));
  EXPECT_EQ(store.counts().num_records, 0u);
  EXPECT_EQ(store.counts().bytes, 0u);
  for (const char* id : {"a", "b", "c"}) store.put(id, record(store, 10));
  EXPECT_EQ(store.counts().num_records, 2u);
  ResponseStore none({.max_bytes = 0});
  none.put("a", record(none, 1));
  EXPECT_EQ(none.find("a", "me"), nullptr);
}

TEST(ResponseStore, WhoKeepsTheMostMakesRoom) {
  ResponseStore store({.max_bytes = 10000, .max_count = 100});
  store.put("mine", record(store, 1000));
  for (int i = 0; i < 20; ++i) {
    ResponseStore::Record more = record(store, 1000);
    more.who = "you";
    store.put("yours " + std::to_string(i), std::move(more));
  }
  EXPECT_NE(store.find("mine", "me"), nullptr);
  EXPECT_EQ(store.find("yours 0", "you"), nullptr);
  EXPECT_NE(store.find("yours 19", "you"), nullptr);
}

TEST(ResponseStore, AnswersAreTheirOwners) {
  ResponseStore store({});
  store.put("a", record(store, 1));
  EXPECT_EQ(store.find("a", "you"), nullptr);
  EXPECT_EQ(store.erase("a", "you"), nullptr);
  EXPECT_EQ(store.cancel("a", "you"), nullptr);
  EXPECT_NE(store.find("a", "me"), nullptr);
}

TEST(ResponseStore, WhatRunsCanBeCancelledAndEnds) {
  ResponseStore store({});
  auto running = record(store, 1);
  running.running = running.background = true;
  store.put("a", running);
  EXPECT_TRUE(store.cancel("a", "me")->cancelled);
  running.running = false;
  store.finish("a", running);
  EXPECT_TRUE(store.find("a", "me")->cancelled);
  EXPECT_FALSE(store.find("a", "me")->running);
  store.erase("a", "me");
  store.finish("a", running);  // too late: it was erased
  EXPECT_EQ(store.find("a", "me"), nullptr);
}

TEST(ResponseStore, WhatRunsStaysHoweverMuchComes) {
  ResponseStore store({.max_bytes = 5000, .max_count = 100});
  auto running = record(store, 1000);
  running.running = running.background = true;
  store.put("a", running);
  for (const char* id : {"b", "c", "d", "e", "f"}) store.put(id, record(store, 1500));
  EXPECT_NE(store.find("a", "me"), nullptr);
  EXPECT_EQ(store.find("b", "me"), nullptr);
  EXPECT_NE(store.find("f", "me"), nullptr);
  running.running = false;
  store.finish("a", std::move(running));
  running = {};
  for (const char* id : {"g", "h", "i"}) store.put(id, record(store, 1500));
  EXPECT_EQ(store.find("a", "me"), nullptr);
}

TEST(ResponseIds, TellTheRank) {
  EXPECT_EQ(rank_of_response(new_response_id(-1)), -1);
  EXPECT_EQ(rank_of_response(new_response_id(0)), 0);
  EXPECT_EQ(rank_of_response(new_response_id(31)), 31);
  for (const char* id : {"", "resp_", "resp__", "resp_x_1", "msg_1_2"})
    EXPECT_EQ(rank_of_response(id), -1) << id;
  EXPECT_NE(new_response_id(0), new_response_id(0));
}

}  // namespace
}  // namespace hocket
