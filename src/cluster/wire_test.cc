#include "cluster/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/source_dir_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

Identity some_identity() {
  return {.rank = 2,
          .num_ranks = 4,
          .ranks_per_node = 2,
          .host = "h1",
          .boot_id = "b2",
          .version = "0.1.0",
          .model_hash = "m",
          .plans = "p",
          .arithmetic = "1",
          .disaggregation = "null",
          .address = "[2001:db8::2]:4000"};
}

RankSet some_ranks() {
  RankSet set;
  for (const int rank : {0, 63, 64, 127}) set.add(rank);
  return set;
}

// One message of every type, with no field at its default.
std::vector<Message> one_of_each() {
  Nonce nonce{};
  nonce[31] = 7;
  Proof proof{};
  proof[0] = 9;
  const Heartbeat heartbeat{.step = 1ull << 40,
                            .stage = 7,
                            .state = EngineState::waiting,
                            .expected_ms = 120,
                            .loaded = 3,
                            .to_load = 5,
                            .terms = "8 rows",
                            .leaves = true,
                            .max_replicas = 6,
                            .unreachable = some_ranks()};
  const ClusterView view{.epoch = 6,
                         .members = {{MemberState::member, some_identity(), true},
                                     {MemberState::absent, Identity{}, false}},
                         .lost = 1,
                         .why = "rank 1 is silent for 3.0 s",
                         .tolerate_ranks = 1,
                         .began = true,
                         .replicas = 4};
  return {HelloMessage{true, true, nonce},
          ProofMessage{nonce, proof},
          WelcomeMessage{proof},
          JoinMessage{some_identity(), 5, true, true, heartbeat, 4},
          RefusedMessage{true, 50, "text", "fix"},
          ViewMessage{view},
          HeartbeatMessage{heartbeat},
          LeaveMessage{"why"},
          ReportMessage{3, -1, "why"},
          StoreRequest{11, StoreOp::add, "key", "value", -4},
          StoreReply{11, 103, "value", -4}};
}

std::string frame_of(const Message& message) {
  std::string bytes;
  append_frame(bytes, message);
  return bytes;
}

TEST(ClusterWire, EveryMessageReadsBackAsItWasWritten) {
  ASSERT_EQ(one_of_each().size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each()) {
    const std::string bytes = frame_of(message);
    const auto length = frame_length(bytes, kMaxFrameBytes);
    ASSERT_TRUE(length && length->has_value());
    EXPECT_EQ(**length, bytes.size() - 4);
    const auto again = parse_frame(std::string_view(bytes).substr(4));
    ASSERT_TRUE(again) << message.index() << again.error().message;
    EXPECT_TRUE(*again == message) << message.index();
  }
}

// Their files are named as the types of messages; a fuzzer begins with nothing of an old protocol.
TEST(ClusterWire, TheFuzzersSeedsAreMessagesOfEveryType) {
  std::set<size_t> types;
  for (const auto& file :
       std::filesystem::directory_iterator(source_dir() / "fuzz/seeds/cluster_wire")) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    const auto message = parse_frame(std::string_view(bytes).substr(4));
    ASSERT_TRUE(message) << file.path() << ": " << message.error().message;
    types.insert(message->index());
  }
  EXPECT_EQ(types.size(), std::variant_size_v<Message>);
}

TEST(ClusterWire, AFrameCutShortOrWithMoreBehindIsRefused) {
  for (const Message& message : one_of_each()) {
    const std::string frame = frame_of(message).substr(4);
    for (size_t size = 0; size < frame.size(); ++size)
      EXPECT_FALSE(parse_frame(std::string_view(frame).substr(0, size))) << message.index();
    EXPECT_FALSE(parse_frame(frame + '\0')) << message.index();
  }
}

TEST(ClusterWire, ValuesThatDoNotExistAreRefused) {
  std::string heartbeat = frame_of(HeartbeatMessage{}).substr(4);
  heartbeat[2 + 8 + 4] = 3;  // an engine state
  EXPECT_THAT(parse_frame(heartbeat).error().message, HasSubstr("does not exist"));

  std::string replicas = frame_of(HeartbeatMessage{}).substr(4);
  for (const int number : {-2, kMaxReplicas + 1}) {
    std::memcpy(replicas.data() + replicas.size() - 16 - sizeof number, &number, sizeof number);
    EXPECT_THAT(parse_frame(replicas).error().message, HasSubstr("replicas is out of range"));
  }

  std::string hello = frame_of(HelloMessage{}).substr(4);
  hello[2] ^= 1;
  EXPECT_THAT(parse_frame(hello).error().message, HasSubstr("not of this protocol"));

  std::string unknown = frame_of(HeartbeatMessage{}).substr(4);
  unknown[1] = 99;
  EXPECT_THAT(parse_frame(unknown).error().message, HasSubstr("unknown type 99"));

  std::string report = frame_of(ReportMessage{1, 127, ""}).substr(4);
  report[2 + 4 + 1] = 1;  // rank 127 + 256
  EXPECT_THAT(parse_frame(report).error().message, HasSubstr("rank is out of range"));
}

// Sentences of others are printed, so one with a line end could forge lines of a log.
TEST(ClusterWire, SentencesAreOneLine) {
  const std::string forged = "gone\n\x1b[2Jcluster: all is well\x7f";
  const std::string one_line = "gone  [2Jcluster: all is well ";
  const auto again = [](const Message& message) {
    return *parse_frame(std::string_view(frame_of(message)).substr(4));
  };
  EXPECT_EQ(std::get<LeaveMessage>(again(LeaveMessage{forged})).why, one_line);
  EXPECT_EQ(std::get<ReportMessage>(again(ReportMessage{1, 1, forged})).why, one_line);
  const auto refused =
      std::get<RefusedMessage>(again(RefusedMessage{.text = forged, .fix = forged}));
  EXPECT_EQ(refused.text, one_line);
  EXPECT_EQ(refused.fix, one_line);
  EXPECT_EQ(std::get<ViewMessage>(again(ViewMessage{{.why = forged}})).view.why, one_line);

  std::string damaged = frame_of(LeaveMessage{"gone, all is well"}).substr(4);
  for (const char control : {'\n', '\0', '\x1f', '\x7f'}) {
    damaged[damaged.find("gone") + 4] = control;
    EXPECT_THAT(parse_frame(damaged).error().message, HasSubstr("control characters"));
    damaged[damaged.find("gone") + 4] = ',';
  }
}

TEST(ClusterWire, AnotherVersionIsNamedWithOurs) {
  std::string frame = frame_of(HeartbeatMessage{}).substr(4);
  frame[0] = kClusterProtocol + 1;
  const auto message = parse_frame(frame);
  EXPECT_EQ(message.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(message.error().message, HasSubstr(fmt::format("version {}", kClusterProtocol + 1)));
  EXPECT_THAT(message.error().message, HasSubstr(fmt::format("this process {}", kClusterProtocol)));
}

TEST(ClusterWire, LengthsAreBounded) {
  std::string bytes = frame_of(LeaveMessage{std::string(1000, 'x')});
  EXPECT_FALSE(frame_length(bytes, 100));
  EXPECT_FALSE(frame_length(std::string(4, '\xff'), kMaxFrameBytes));
  EXPECT_FALSE(frame_length(std::string("\1\0\0\0", 4), kMaxFrameBytes));
  EXPECT_FALSE(frame_length("\1\0\0", kMaxFrameBytes)->has_value());
}

TEST(ClusterWire, TheLargestViewFits) {
  ClusterView view;
  Identity largest = some_identity();
  for (std::string* text :
       {&largest.host, &largest.boot_id, &largest.version, &largest.model_hash, &largest.plans,
        &largest.arithmetic, &largest.disaggregation, &largest.address})
    text->assign(kMaxNameBytes, 'x');
  view.members.assign(kMaxRanks, {MemberState::member, largest, true});
  view.why.assign(kMaxWhyBytes, 'x');
  EXPECT_LT(frame_of(ViewMessage{view}).size(), kMaxFrameBytes);
}

TEST(ClusterMember, WhatDiffersIsNamedWithBothValues) {
  const Identity rank_0{.rank = 0, .num_ranks = 4, .host = "h0", .model_hash = "aaa"};
  Identity other{.rank = 1, .num_ranks = 4, .host = "h1", .model_hash = "aaa"};
  EXPECT_FALSE(disagreement(rank_0, other));
  other.model_hash = "bbb";
  EXPECT_EQ(disagreement(rank_0, other)->message,
            "the model hash differs: rank 0 (h0) has aaa, rank 1 (h1) has bbb");
  const std::pair<std::string Identity::*, const char*> fields[] = {
      {&Identity::version, "version of hocket"},
      {&Identity::plans, "plan set"},
      {&Identity::arithmetic, "arithmetic level"},
      {&Identity::disaggregation, "disaggregation mode"}};
  for (const auto& [field, name] : fields) {
    Identity wrong = rank_0;
    wrong.*field = "x";
    EXPECT_THAT(disagreement(rank_0, wrong)->message, HasSubstr(name));
  }
  Identity wrong = rank_0;
  wrong.num_ranks = 3;
  EXPECT_THAT(disagreement(rank_0, wrong)->message, HasSubstr("rank 0 (h0) has 4"));
}

TEST(ClusterMember, IdentitiesAreChecked) {
  Identity fine = some_identity();
  EXPECT_TRUE(check(fine));
  fine.rank = 4;
  EXPECT_THAT(check(fine).error().message, HasSubstr("no rank 4 among 4"));
  fine = some_identity();
  fine.host = "h1\nforged line";
  EXPECT_THAT(check(fine).error().message, HasSubstr("host of rank 2 has control characters"));
  fine = some_identity();
  fine.num_ranks = kMaxRanks + 1;
  EXPECT_FALSE(check(fine));
  fine = some_identity();
  fine.address.assign(kMaxNameBytes + 1, 'x');
  EXPECT_THAT(check(fine).error().message, HasSubstr("address of rank 2 is 256 bytes long"));
  fine.address = "10.0.0.2:4000\ncluster: all is well";
  EXPECT_THAT(check(fine).error().message, HasSubstr("address of rank 2 has control characters"));
}

}  // namespace
}  // namespace hocket
