#include "cluster/join_attempt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/proxy_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;
using Retry = JoinAttempt::Failure::Retry;

// An attempt that has dialled, and the other end of its connection.
class JoinAttemptTest : public testing::Test {
 protected:
  static constexpr uint64_t kAttempt = 5, kPeer = 6;
  static constexpr Duration kLimit = std::chrono::seconds(10);

  void SetUp() override {
    options_.token = "a token of the cluster";
    auto listener = listen_on(TestProxy::loopback(0));
    ASSERT_TRUE(listener.has_value());
    coordinator_ = CoordinatorAddress(0, {"127.0.0.1", local_address(*listener).port()});
    auto dialled = start_dial(*coordinator_.next(true));
    ASSERT_TRUE(dialled.has_value());
    attempt_.emplace(JoinAttempt::Options{.cluster = options_,
                                          .coordinator = coordinator_,
                                          .poller = poller_,
                                          .join = [] { return JoinMessage{.last_epoch = 7}; }},
                     *std::move(dialled), kAttempt, RealClock().now());
    await(kAttempt);
    ASSERT_TRUE(attempt_->finish_dial(RealClock().now()).has_value());
    Fd accepted(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    peer_ = std::make_unique<Connection>(std::move(accepted), poller_, kPeer);
  }

  // Waits until the socket of this token is ready.
  void await(uint64_t token) {
    const TimePoint until = RealClock().now() + kLimit;
    while (RealClock().now() < until)
      for (const epoll_event& event : poller_.wait(until))
        if (event.data.u64 == token) return;
    ADD_FAILURE() << "nothing came";
  }
  auto read_after(const Message& message) {
    peer_->send(message);
    await(kAttempt);
    return attempt_->read();
  }
  template <class M>
  M heard() {
    await(kPeer);
    peer_->receive();
    const auto message = peer_->next(kMaxFrameBytes);
    return std::get<M>(**message);
  }
  // Plays the coordinator up to its welcome.
  auto read_after_welcome() {
    const HelloMessage hello{.needs_token = true, .nonce = make_nonce()};
    EXPECT_FALSE(read_after(hello).value().has_value());
    const auto proof = heard<ProofMessage>();
    EXPECT_EQ(proof.proof, prove(options_.token, Side::other, hello.nonce, proof.nonce));
    return read_after(
        WelcomeMessage{prove(options_.token, Side::rank_0, proof.nonce, hello.nonce)});
  }

  ClusterOptions options_;
  Poller poller_;
  CoordinatorAddress coordinator_;
  std::optional<JoinAttempt> attempt_;
  std::unique_ptr<Connection> peer_;
};

TEST_F(JoinAttemptTest, TheCoordinatorTakesThisRankInWithItsView) {
  EXPECT_FALSE(read_after_welcome().value().has_value());
  EXPECT_EQ(heard<JoinMessage>().last_epoch, 7u);
  ClusterView view;
  view.epoch = 8;
  const auto joined = read_after(ViewMessage{view});
  EXPECT_EQ(joined.value(), view);
}

TEST_F(JoinAttemptTest, ARefusalWithoutProofDoesNotEndARankThatWasAMember) {
  const auto read =
      read_after(RefusedMessage{.may_retry = false, .code = 0, .text = "no", .fix = {}});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().retry, Retry::members);
  EXPECT_EQ(read.error().why.message, "rank 0 refuses this rank: no");
}

TEST_F(JoinAttemptTest, ARefusalBehindTheProofIsFinal) {
  EXPECT_TRUE(read_after_welcome().has_value());
  const auto read =
      read_after(RefusedMessage{.may_retry = false, .code = 0, .text = "no", .fix = {}});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().retry, Retry::none);
}

TEST_F(JoinAttemptTest, ARefusalMaySayThatItPasses) {
  const auto read =
      read_after(RefusedMessage{.may_retry = true, .code = 0, .text = "wait", .fix = {}});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().retry, Retry::every_rank);
}

TEST_F(JoinAttemptTest, AnotherTokenIsSeenInTheProof) {
  EXPECT_FALSE(read_after(HelloMessage{.needs_token = true}).value().has_value());
  const auto read = read_after(WelcomeMessage{});
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().retry, Retry::members);
  EXPECT_THAT(read.error().why.message, HasSubstr("does not know the cluster token"));
}

TEST_F(JoinAttemptTest, TheEndOfTheConnectionLetsEveryRankTryAgain) {
  peer_.reset();
  await(kAttempt);
  const auto read = attempt_->read();
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().retry, Retry::every_rank);
  EXPECT_THAT(read.error().why.message, HasSubstr("rank 0 ended the connection"));
}

TEST(CoordinatorAddressTest, HasTheWordsForAsMuchAsIsKnown) {
  EXPECT_EQ(CoordinatorAddress().text(), "a coordinator");
  const CoordinatorAddress known(2, {"h2", 5000});
  EXPECT_EQ(known.name(), "rank 2");
  EXPECT_EQ(known.text(), "rank 2 at h2:5000");
}

TEST(CoordinatorAddressTest, GivesTheAddressesOfAHostInTurn) {
  CoordinatorAddress loopback(0, {"127.0.0.1", 5000});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(loopback.next(false).value().text(), "127.0.0.1:5000");
}

}  // namespace
}  // namespace hocket
