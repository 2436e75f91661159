#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/reply/stream_records_testing.h"

namespace hocket {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;
using Keepers = std::vector<std::string>;

// Tells the keeper all that it does not know.
void tell(StreamRecords& from, StreamRecords& keeper, const std::string& name) {
  for (int i = 0; i < 2; ++i) {
    const auto changes = from.changes().changes_for(name, 16);
    for (const auto& record : changes.whole) {
      ASSERT_TRUE(keeper.add_copy(record.request, "own"));
      from.changes().copied_to(*record.stream, name, true);
    }
    const auto unknown = keeper.changes().take_changes(changes.lines, "own");
    ASSERT_TRUE(unknown) << changes.lines;
    from.changes().copies_lack(*unknown, name);
  }
}

// Adds a stream of which keeper k shall have a copy.
StreamRecordPtr add_kept(StreamRecords& own) {
  own.changes().set_keepers(Keepers{"k"});
  StreamRecordPtr stream = own.add(request("a"), StreamState::live);
  own.changes().set_copies(*stream, 1);
  return stream;
}

TEST(StreamRecords, TheKeeperLearnsAllThatChanges) {
  StreamRecords own({}), keeper({}), next({});
  const auto stream = own.add(request("a", "ann", 100, 2), StreamState::live);
  const auto other = own.add(request("other"), StreamState::live);  // wants no copy
  own.changes().set_keepers(Keepers{"k"});
  own.changes().set_copies(*stream, 1);
  own.add_token(*stream, 1, 0, TokenId{4});
  tell(own, keeper, "k");
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, (Tokens{{}, {TokenId{4}}}));
  EXPECT_EQ(keeper.find("a", "ann")->request.identity.call_seed, 9u);
  EXPECT_FALSE(keeper.find("other", "ann"));
  own.add_token(*stream, 1, 1, TokenId{5});
  own.add_token(*stream, 0, 0, TokenId{6});
  tell(own, keeper, "k");
  const Tokens all = {{TokenId{6}}, {TokenId{4}, TokenId{5}}};
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, all);
  EXPECT_EQ(keeper.find("a", "ann")->state, StreamState::copy);
  EXPECT_EQ(own.changes().changes_for("n", 16).whole.size(), 0u) << "it is no keeper";
  own.changes().forget_copies("k");
  EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 1u);
  own.changes().set_keepers(Keepers{"n"});
  tell(own, next, "n");
  EXPECT_EQ(next.find("a", "ann")->request.tokens, all);
  own.set_state(*stream, StreamState::left);
  tell(own, next, "n");
  EXPECT_EQ(next.find("a", "ann")->state, StreamState::left);
  EXPECT_EQ(own.changes().changes_for("n", 16).lines, "");
}

TEST(StreamRecords, TheKeeperForgetsWhatIsGone) {
  StreamRecords own({}), keeper({});
  const auto stream = add_kept(own);
  tell(own, keeper, "k");
  own.erase(*stream);
  tell(own, keeper, "k");
  EXPECT_FALSE(keeper.find("a", "ann"));
}

// The stream ends while its request is on the way to the keeper.
TEST(StreamRecords, AKeeperThatAnswersLateForgetsWhatIsGone) {
  StreamRecords own({}), keeper({});
  const auto stream = add_kept(own);
  const auto sent = own.changes().changes_for("k", 16);
  ASSERT_EQ(sent.whole.size(), 1u);
  own.erase(*stream);
  EXPECT_EQ(own.changes().changes_for("k", 16).lines, "") << "the keeper is not known to have it";
  ASSERT_TRUE(keeper.add_copy(sent.whole[0].request, "own"));
  own.changes().copied_to(*stream, "k", true);
  tell(own, keeper, "k");
  EXPECT_FALSE(keeper.find("a", "ann"));
}

TEST(StreamRecords, AStreamThatComesBackIsNotTakenForTheOneThatIsGone) {
  StreamRecords own({}), keeper({});
  const auto stream = add_kept(own);
  tell(own, keeper, "k");
  own.erase(*stream);
  const auto again = own.add(request("a"), StreamState::live);
  own.changes().set_copies(*again, 1);
  own.add_token(*again, 0, 0, TokenId{4});
  tell(own, keeper, "k");
  ASSERT_TRUE(keeper.find("a", "ann"));
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, (Tokens{{TokenId{4}}}));
}

TEST(StreamRecords, WithoutAKeeperNoRecordThatIsGoneIsHeld) {
  StreamRecords own({});
  own.changes().set_keepers(Keepers{"k"});
  std::weak_ptr<StreamRecord> held;
  {
    const auto stream = own.add(request("a"), StreamState::live);
    own.changes().set_copies(*stream, 1);
    own.erase(*stream);
    held = stream;
  }
  EXPECT_FALSE(held.expired()) << "a keeper would be told";
  own.changes().set_keepers({});
  EXPECT_TRUE(held.expired());
}

// The numbers of keepers that have the stream: both, or the one that does not hold it anyway.
TEST(StreamRecords, AsManyKeepersHaveAStreamAsItWants) {
  StreamRecords own({});
  own.changes().set_keepers(Keepers{"k", "n"});
  const auto has = [&](size_t num, const char* holder) {
    const auto stream = own.add(request("a"), StreamState::live);
    own.changes().set_copies(*stream, num, holder);
    std::string names;
    for (const char* name : {"k", "n"}) {
      if (own.changes().changes_for(name, 16).whole.size() == 1) names += name;
    }
    return names;
  };
  EXPECT_EQ(has(0, ""), "");
  EXPECT_EQ(has(1, ""), "k");
  EXPECT_EQ(has(2, ""), "kn");
  EXPECT_EQ(has(1, "k"), "n");
  EXPECT_EQ(has(1, "n"), "k");
  EXPECT_EQ(has(1, "elsewhere"), "k");
}

// A rank of another host comes back, and is preferred to the keeper that stays.
TEST(StreamRecords, TheFirstOfTheOrderHasTheOnlyCopy) {
  StreamRecords own({});
  own.changes().set_keepers(Keepers{"same", "holder"});
  const auto stream = own.add(request("a"), StreamState::live);
  own.changes().set_copies(*stream, 1, "holder");
  EXPECT_EQ(own.changes().changes_for("same", 16).whole.size(), 1u);
  own.changes().set_keepers(Keepers{"elsewhere", "same"});
  EXPECT_EQ(own.changes().changes_for("elsewhere", 16).whole.size(), 1u);
  EXPECT_EQ(own.changes().changes_for("same", 16).whole.size(), 0u);
  const auto next = own.add(request("b"), StreamState::live);
  own.changes().set_copies(*next, 1, "holder");
  EXPECT_EQ(own.changes().changes_for("same", 16).whole.size(), 0u);
  EXPECT_EQ(own.changes().changes_for("elsewhere", 16).whole.size(), 1u);
  own.changes().set_keepers(Keepers{"same", "elsewhere"});
  // The order alone changed. The first stream is still on its way to this keeper.
  EXPECT_EQ(own.changes().changes_for("same", 16).whole.size(), 1u);
}

TEST(StreamRecords, AKeeperThatStaysIsNotSentAllAnewWhenTheOtherGoes) {
  StreamRecords own({}), keeper({}), next({});
  own.changes().set_keepers(Keepers{"gone", "k"});
  const auto stream = own.add(request("a"), StreamState::live);
  own.changes().set_copies(*stream, 2);
  tell(own, keeper, "k");
  own.changes().set_keepers(Keepers{"k", "n"});
  EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 0u);
  tell(own, next, "n");
  EXPECT_TRUE(next.find("a", "ann"));
  own.changes().set_keepers(Keepers{"n"});
  own.changes().set_keepers(Keepers{"n", "k"});
  EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 1u)
      << "it may have forgotten the stream";
}

// Another rank continues the stream and has sent it to the same keeper.
TEST(StreamRecords, ARankThatLostAStreamTellsNothingOfItThatCounts) {
  StreamRecords keeper({});
  ASSERT_TRUE(keeper.add_copy(request("a"), "rank 1"));
  ASSERT_TRUE(keeper.add_copy(request("a"), "rank 2"));
  EXPECT_TRUE(keeper.changes().take_changes("a gone\n", "rank 1"));
  EXPECT_TRUE(keeper.changes().take_changes("a live 0:0:5\n", "rank 2"));
  ASSERT_TRUE(keeper.find("a", "ann"));
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, (Tokens{{TokenId{5}}}));
}

TEST(StreamRecords, WrongChangesAreRefused) {
  StreamRecords keeper({});
  ASSERT_TRUE(keeper.add_copy(request("a"), ""));
  const auto live = keeper.add(request("live"), StreamState::live);
  for (const char* wrong : {"a live x", "a live 0:0:x\n", "a live 1:0:5\n", "a live 0:0:-5\n",
                            "a live 99999999999999999999:0:1\n", "a live 0::1\n"})
    EXPECT_FALSE(keeper.changes().take_changes(wrong, "")) << wrong;
  for (const char* other : {"", "\n\n", "b left\n", "live gone\n", "a live 0:5:1\n", "a live\n"})
    EXPECT_TRUE(keeper.changes().take_changes(other, "")) << other;
  EXPECT_TRUE(keeper.find("live", "ann"));
  EXPECT_TRUE(keeper.find("a", "ann")->request.tokens[0].empty());
}

// A request that was delayed on its way replaces the copy by one without tokens.
TEST(StreamRecords, ACopyThatLacksTokensIsSentWholeAgain) {
  StreamRecords own({.retry = {}}), keeper({});
  const auto stream = add_kept(own);
  own.add_token(*stream, 0, 0, TokenId{4});
  tell(own, keeper, "k");
  ASSERT_TRUE(keeper.add_copy(request("a"), "own"));
  own.add_token(*stream, 0, 1, TokenId{5});
  tell(own, keeper, "k");
  tell(own, keeper, "k");
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, (Tokens{{TokenId{4}, TokenId{5}}}));
}

TEST(StreamRecords, ACopyThatTheKeeperHasNoMoreIsSentAgain) {
  StreamRecords own({.retry = {}}), keeper({});
  const auto stream = add_kept(own);
  tell(own, keeper, "k");
  keeper.erase("a", "ann");
  own.add_token(*stream, 0, 0, TokenId{4});
  tell(own, keeper, "k");
  tell(own, keeper, "k");
  ASSERT_TRUE(keeper.find("a", "ann"));
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, (Tokens{{TokenId{4}}}));
}

TEST(StreamRecords, TheKeeperTakesTheTokensThatItLacksAndReportsGaps) {
  StreamRecords keeper({});
  ASSERT_TRUE(keeper.add_copy(request("a"), "own"));
  EXPECT_THAT(keeper.changes().take_changes("a live 0:0:4,5\n", "own"), Optional(IsEmpty()));
  EXPECT_THAT(keeper.changes().take_changes("a live 0:0:4,5,6\n", "own"), Optional(IsEmpty()));
  EXPECT_THAT(keeper.changes().take_changes("a live 0:4:8\nb live\nc left\nd gone\n", "own"),
              Optional(ElementsAre("a", "b")));
  EXPECT_THAT(keeper.changes().take_changes("a live 0:4:8\n", "other"), Optional(IsEmpty()));
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens,
            (Tokens{{TokenId{4}, TokenId{5}, TokenId{6}}}));
  EXPECT_THAT(keeper.changes().take_changes(std::string(1000, 'x') + " live\n", "own"),
              Optional(IsEmpty()));
  std::string many;
  for (size_t i = 0; i < 2 * StreamChanges::kMaxLacking; ++i) many += fmt::format("x{} live\n", i);
  EXPECT_EQ(keeper.changes().take_changes(many, "own")->size(), StreamChanges::kMaxLacking);
}

TEST(StreamRecords, ACopyMakesNoOtherCopyGo) {
  StreamRecords keeper({.max_bytes = 12'000});
  const auto left = keeper.add(request("left", "bob", 1000), StreamState::left);
  for (const char* id : {"1", "2", "3"})
    ASSERT_TRUE(keeper.add_copy(request(id, "ann", 1000), "own")) << id;
  const auto refused = keeper.add_copy(request("4", "ann", 1000), "own");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_TRUE(keeper.find("1", "ann"));
  for (const char* id : {"5", "6", "7"})
    ASSERT_TRUE(keeper.add_copy(request(id, "cid", 1000), "own")) << id;
  EXPECT_TRUE(keeper.add_copy(request("8", "dan", 2300), "own")) << "what was left makes room";
  EXPECT_TRUE(left->removed);
  EXPECT_EQ(keeper.counts().num_evicted, 1u);
  EXPECT_NE(keeper.add(request("9", "eve", 1000), StreamState::live), nullptr);
  EXPECT_EQ(keeper.counts().num_evicted, 2u) << "a stream of this rank makes a copy go";
}

TEST(StreamRecords, ACopyForWhichThereIsNoRoomForTokensIsReported) {
  StreamRecords keeper({.max_bytes = 2000});
  ASSERT_TRUE(keeper.add_copy(request("a", "ann", 400), "own"));
  std::string line = "a live 0:0:1";
  for (int i = 0; i < 100; ++i) line += ",1";
  EXPECT_THAT(keeper.changes().take_changes(line + "\n", "own"), Optional(ElementsAre("a")));
  EXPECT_EQ(keeper.counts().num_evicted, 1u);
  EXPECT_EQ(keeper.counts().bytes, 0u);
}

TEST(StreamRecords, AKeeperThatRefusedIsNotAskedAtEveryTick) {
  for (const Duration retry : {Duration(std::chrono::hours(1)), Duration{}}) {
    StreamRecords own({.retry = retry});
    own.changes().set_keepers(Keepers{"k"});
    const auto stream = own.add(request("a"), StreamState::live);
    own.changes().set_copies(*stream, 1);
    EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 1u);
    EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 0u) << "it is on its way";
    own.changes().copied_to(*stream, "k", false);
    const size_t again = retry == Duration{} ? 1 : 0;
    EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), again);
  }
}

TEST(StreamRecords, TheTickSendsNoRequestThatIsOnItsWay) {
  StreamRecords own({});
  own.changes().set_keepers(Keepers{"k"});
  const auto stream = own.add(request("a"), StreamState::live);
  EXPECT_FALSE(own.changes().begin_copy(stream, "k")) << "it wants no copy";
  own.changes().set_copies(*stream, 1);
  EXPECT_FALSE(own.changes().begin_copy(stream, "n")) << "it is no keeper";
  ASSERT_TRUE(own.changes().begin_copy(stream, "k"));
  EXPECT_FALSE(own.changes().begin_copy(stream, "k"));
  own.add_token(*stream, 0, 0, TokenId{4});
  const auto changes = own.changes().changes_for("k", 16);
  EXPECT_EQ(changes.whole.size(), 0u);
  EXPECT_EQ(changes.lines, "");
  own.changes().copied_to(*stream, "k", true);
  EXPECT_EQ(own.changes().changes_for("k", 16).lines, "a live 0:0:4\n");
}

// It hears nothing of the stream while another rank is the keeper, so it may have forgotten it.
TEST(StreamRecords, AKeeperThatIsWantedAgainIsSentTheStreamWhole) {
  StreamRecords own({}), keeper({}), first({});
  own.changes().set_keepers(Keepers{"first", "k"});
  const auto stream = add_kept(own);
  tell(own, keeper, "k");
  EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 0u);
  own.changes().set_keepers(Keepers{"first", "k"});
  tell(own, first, "first");
  own.changes().set_keepers(Keepers{"k"});
  EXPECT_EQ(own.changes().changes_for("k", 16).whole.size(), 1u);
}

TEST(StreamRecords, TheKeeperSaysWhyItRefusesACopy) {
  StreamRecords keeper({.max_body = 1000});
  const auto code = [&](RecordedRequest copy) {
    const auto kept = keeper.add_copy(std::move(copy), "rank 1");
    return kept ? std::nullopt : std::optional(kept.error().code);
  };
  ASSERT_NE(keeper.add(request("own"), StreamState::live), nullptr);
  EXPECT_EQ(code(request("own")), ErrorCode::taken_over);
  EXPECT_EQ(code(request("own", "bob")), ErrorCode::taken_over);
  EXPECT_EQ(code(request("large", "ann", 1001)), ErrorCode::payload_too_large);
  EXPECT_TRUE(keeper.find("own", "ann"));
}

// The rank was believed lost, another one continued its stream, and it lives.
TEST(StreamRecords, ARankThatLostAStreamSendsNoCopyThatCounts) {
  StreamRecords own({}), other({}), keeper({});
  const auto lost = own.add(request("a"), StreamState::live);
  const auto stream = other.add(request("a"), StreamState::live);
  other.changes().count_takeover(*stream);
  const auto copy = [](StreamRecords& of, const StreamRecordPtr& record) {
    of.changes().set_keepers(Keepers{"k"});
    of.changes().set_copies(*record, 1);
    return of.changes().begin_copy(record, "k")->request;
  };
  ASSERT_TRUE(keeper.add_copy(copy(own, lost), "rank 1"));
  ASSERT_TRUE(keeper.add_copy(copy(other, stream), "rank 2"));
  EXPECT_FALSE(keeper.add_copy(lost->request, "rank 1"));
  EXPECT_TRUE(keeper.changes().take_changes("a live 0:0:5\n", "rank 2"));
  EXPECT_EQ(keeper.find("a", "ann")->request.tokens, (Tokens{{TokenId{5}}}));
}

}  // namespace
}  // namespace hocket
