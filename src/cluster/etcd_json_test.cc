#include "cluster/etcd_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EtcdJson, Base64IsStrict) {
  for (const std::string bytes : {"", "a", "ab", "abc", "abcd"})
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  EXPECT_EQ(to_base64("/a"), "L2E=");
  for (const char* bad : {"L2E", "L2E =", "L2F=", "====", "L2E=L2E=", "\nL2E"})
    EXPECT_FALSE(from_base64(bad)) << bad;
}

TEST(EtcdJson, TextsAreThoseOfTheGateway) {
  EXPECT_EQ(etcd_grant_text(4), R"({"TTL":"4"})");
  EXPECT_EQ(etcd_range_text("/a", 1), R"({"key":"L2E=","limit":"1","range_end":"L2I="})");
  EXPECT_EQ(
      etcd_swap_text(
          {.key = "/a", .create_revision = 7, .puts = {{"/b", "1", 3}}, .erased = {"/a"}}),
      R"({"compare":[{"create_revision":"7","key":"L2E=","result":"EQUAL","target":"CREATE"}],)"
      R"("success":[{"request_put":{"key":"L2I=","lease":"3","value":"MQ=="}},)"
      R"({"request_delete_range":{"key":"L2E="}}]})");
  EXPECT_EQ(etcd_watch_text("/a", 9), R"({"create_request":{"key":"L2E=","start_revision":"9"}})");
}

// The answers below are those of etcd 3.4.23.
TEST(EtcdJson, ReadsAnswers) {
  const auto lease =
      read_etcd_lease(R"({"header":{"cluster_id":"12101053776118486841","revision":"1",)"
                      R"("raft_term":"2"},"ID":"9041998919617285125","TTL":"2"})");
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->id, 9041998919617285125);
  EXPECT_EQ(lease->ttl_s, 2);
  const auto gone = read_etcd_keep_alive(R"({"result":{"header":{"revision":"3"},"ID":"123"}})");
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->ttl_s, 0);
  const auto range =
      read_etcd_range(R"({"header":{"revision":"2"},"kvs":[{"key":"L2E=","create_revision":"2",)"
                      R"("mod_revision":"4","version":"1","value":"MQ=="}],"count":"1"})");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->revision, 2);
  EXPECT_THAT(range->entries, ElementsAre(EtcdEntry{"/a", "1", 2, 4}));
  EXPECT_TRUE(read_etcd_range(R"({"header":{"revision":"2"}})")->entries.empty());
  EXPECT_EQ(read_etcd_swapped(R"({"header":{"revision":"3"},"succeeded":true,"responses":[]})"),
            true);
  EXPECT_EQ(read_etcd_swapped(R"({"header":{"revision":"3"}})"), false);
}

TEST(EtcdJson, ReadsChanges) {
  EXPECT_TRUE(
      read_etcd_changes(R"({"result":{"header":{"revision":"3"},"created":true}})")->empty());
  const auto changes =
      read_etcd_changes(R"({"result":{"events":[{"kv":{"key":"L2E=","create_revision":"2",)"
                        R"("mod_revision":"4","value":"Mg=="}},{"type":"DELETE",)"
                        R"("kv":{"key":"L2E=","mod_revision":"5"}}]}})");
  ASSERT_TRUE(changes);
  ASSERT_EQ(changes->size(), 2u);
  EXPECT_EQ(changes->front().entry, (EtcdEntry{"/a", "2", 2, 4}));
  EXPECT_FALSE(changes->front().erased);
  EXPECT_TRUE(changes->back().erased);
  const auto old =
      read_etcd_changes(R"({"result":{"header":{},"canceled":true,"compact_revision":"4"}})");
  ASSERT_FALSE(old);
  EXPECT_THAT(old.error().message, HasSubstr("before revision 4"));
  const auto ended = read_etcd_changes(R"({"error":{"grpc_code":14,"message":"no\nleader"}})");
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("no leader"));
}

TEST(EtcdJson, ReadsErrors) {
  EXPECT_EQ(
      read_etcd_error(404, R"({"error":"etcdserver: requested lease not found","code":5})").code,
      ErrorCode::not_found);
  EXPECT_EQ(read_etcd_error(400, R"({"error":"etcdserver: user name is empty","code":3})").code,
            ErrorCode::unauthorized);
  EXPECT_EQ(read_etcd_error(503, R"({"message":"etcdserver: no leader","code":14})").code,
            ErrorCode::io);
  EXPECT_THAT(read_etcd_error(404, "Not Found\n").message, HasSubstr("HTTP 404"));
}

TEST(EtcdJson, StrangeAnswersAreErrors) {
  for (const char* text :
       {"", "[]", "1", "{", R"({"ID":"x","TTL":"2"})", R"({"ID":"1"})", R"({"ID":1.5,"TTL":"2"})",
        R"({"ID":"1","TTL":"-2"})", R"({"ID":"99999999999999999999","TTL":"2"})"})
    EXPECT_FALSE(read_etcd_lease(text)) << text;
  for (const char* text : {"{}", R"({"header":[]})", R"({"header":{"revision":"2"},"kvs":{}})",
                           R"({"header":{"revision":"2"},"kvs":[1]})",
                           R"({"header":{"revision":"2"},"kvs":[{"value":"MQ=="}]})",
                           R"({"header":{"revision":"2"},"kvs":[{"key":"?"}]})"})
    EXPECT_FALSE(read_etcd_range(text)) << text;
  EXPECT_FALSE(read_etcd_swapped(R"({"header":{"revision":"2"},"succeeded":1})"));
  for (const char* text :
       {R"({"result":{"events":{}}})", R"({"result":{"events":[{}]}})", R"({"result":[]})"})
    EXPECT_FALSE(read_etcd_changes(text)) << text;
  const std::string deep(100'000, '[');
  EXPECT_FALSE(read_etcd_changes(deep));
}

}  // namespace
}  // namespace hocket
