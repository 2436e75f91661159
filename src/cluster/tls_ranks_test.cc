// Tests ranks that talk over TLS: they meet, and strangers on the port can do nothing else.
#include <poll.h>

#include "cluster/ranks_testing.h"
#include "cluster/stranger_testing.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

using testing::HasSubstr;

constexpr char kAlert = 21;  // RFC 8446 §5.1

class TlsRanksTest : public Ranks {
 protected:
  void SetUp() override { tls_ = true; }
  // The error of a rank that joins rank 0 with these options.
  Error refusal_of(const ClusterOptions& given) {
    const auto joined = ControlPlane::join(given, identity(1));
    return joined ? Error() : joined.error();
  }
};

TEST_F(TlsRanksTest, RanksMeetAndTheStoreServesThem) {
  start_all(4);
  std::string value(kMaxStoreValueBytes, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 253);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string key = fmt::format("key {}", rank);
    ASSERT_TRUE(plane(rank).set(key, value));
    for (int other = 0; other < 4; ++other) EXPECT_TRUE(plane(other).get(key).value() == value);
  }
  for (int i = 1; i <= 200; ++i) EXPECT_EQ(plane(3).add("count", 1).value(), i);
}

TEST_F(TlsRanksTest, ADeadRankAndARestartedRankZeroAreKnown) {
  start_all(3, 2);
  proxy_->set(TestProxy::Link::cut);
  EXPECT_TRUE(all_lost(2, {0, 1}));
  proxy_->set(TestProxy::Link::up);
  enter_all();
  planes_[0].reset();
  EXPECT_TRUE(all_lost(0, {1, 2}));
  start_rank_0(port_);
  enter_all();
}

TEST_F(TlsRanksTest, WhatIsSaidIsNotOnTheWire) {
  start_rank_0();
  Stranger stranger(port_);
  const auto hello = stranger.hear();
  ASSERT_TRUE(hello);
  EXPECT_TRUE(std::get<HelloMessage>(*hello).tls);
  // Behind the hello nothing is read in the clear, not even a right proof.
  const Nonce own = make_nonce();
  const Nonce theirs = std::get<HelloMessage>(*hello).nonce;
  stranger.say(ProofMessage{own, prove(kToken, Side::other, theirs, own)});
  EXPECT_FALSE(stranger.hear());
  EXPECT_TRUE(stranger.is_closed());
  EXPECT_TRUE(stranger.rest().empty() || stranger.rest()[0] == kAlert) << "no alert";
}

TEST_F(TlsRanksTest, AnotherTokenIsRefused) {
  start_rank_0();
  ClusterOptions wrong = options(port_);
  wrong.token = "another token, as long";
  wrong.tls = TlsContext::create(wrong.token).value();
  const Error why = refusal_of(wrong);
  EXPECT_EQ(why.code, ErrorCode::unauthorized);
  EXPECT_THAT(why.message, HasSubstr("does not know the cluster token"));
  EXPECT_THAT(why.fix, HasSubstr("--cluster-token-file"));
  start(1, port_);
  enter_all();
}

TEST_F(TlsRanksTest, OneSideWithoutTlsIsToldSo) {
  start_rank_0();
  ClusterOptions without = options(port_);
  without.tls = nullptr;
  const Error why = refusal_of(without);
  EXPECT_EQ(why.code, ErrorCode::unauthorized);
  EXPECT_THAT(why.message, HasSubstr("with TLS, this rank without"));
  EXPECT_THAT(why.fix, HasSubstr("--cluster-tls"));
  planes_[0].reset();
  tls_ = false;
  start_rank_0();
  tls_ = true;
  EXPECT_THAT(refusal_of(options(port_)).message, HasSubstr("without TLS, this rank with"));
}

// Someone between the ranks changes the hello so that a rank would continue in the clear.
TEST_F(TlsRanksTest, NobodyOnTheWayTurnsTlsOff) {
  const auto listener = listen_on(TestProxy::loopback(0));
  auto joined = std::async(std::launch::async,
                           [&] { return refusal_of(options(local_address(*listener).port())); });
  pollfd what{listener->get(), POLLIN, 0};
  ASSERT_EQ(poll(&what, 1, 5000), 1);
  const Fd fd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string hello;
  append_frame(hello, HelloMessage{.needs_token = true, .tls = false});
  ASSERT_EQ(send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL), std::ssize(hello));
  EXPECT_THAT(joined.get().message, HasSubstr("without TLS, this rank with"));
  char received[64];
  EXPECT_EQ(recv(fd.get(), received, sizeof received, 0), 0) << "it said something in the clear";
}

TEST_F(TlsRanksTest, ARefusalInTheClearIsNotBelieved) {
  const auto listener = listen_on(TestProxy::loopback(0));
  ClusterOptions impatient = options(local_address(*listener).port());
  impatient.rank_wait = milliseconds(300);
  auto joined = std::async(std::launch::async, [&] { return refusal_of(impatient); });
  pollfd what{listener->get(), POLLIN, 0};
  ASSERT_EQ(poll(&what, 1, 5000), 1);
  const Fd fd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string refusal;
  append_frame(refusal, RefusedMessage{.may_retry = false, .text = "go away"});
  ASSERT_EQ(send(fd.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL), std::ssize(refusal));
  EXPECT_THAT(joined.get().message, testing::Not(HasSubstr("go away")));
}

TEST_F(TlsRanksTest, StrangersAreClosedInTime) {
  start_rank_0();
  TlsStream true_client(options(0).tls, TlsEnd::client);
  std::string plain, client_hello;
  ASSERT_TRUE(true_client.receive({}, plain, client_hello));
  Stranger silent(port_), half(port_), slow(port_), chatty(port_);
  for (Stranger* one : {&silent, &half, &slow, &chatty}) ASSERT_TRUE(one->hear());
  half.say(std::string_view(client_hello).substr(0, client_hello.size() / 2));
  slow.say(client_hello);  // and never ends the handshake
  std::string endless;     // records that mean nothing, as long as the handshake has not begun
  for (int i = 0; i < 1000; ++i) endless += std::string("\x14\x03\x03\x00\x01\x01", 6);
  chatty.say(endless);
  EXPECT_TRUE(chatty.is_closed());
  for (Stranger* one : {&silent, &half, &slow}) EXPECT_TRUE(one->is_closed());
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\xff'), std::string(64, '\0')}) {
    Stranger stranger(port_);
    ASSERT_TRUE(stranger.hear());
    stranger.say(bytes);
    EXPECT_TRUE(stranger.is_closed(milliseconds(300))) << bytes;
  }
  start(1, port_);
  enter_all();
}

TEST_F(TlsRanksTest, AFloodDoesNotKeepRanksOut) {
  start_rank_0();
  std::vector<Stranger> flood;
  for (int i = 0; i < 200; ++i) flood.emplace_back(port_);
  start(1, port_);
  enter_all();
}

// The bytes of the third message are damaged: nothing of it is believed, and the rank comes back.
TEST_F(TlsRanksTest, ADamagedRecordEndsOnlyItsConnection) {
  start_all(2, 1);
  proxy_->damage_after(100);
  ASSERT_TRUE(plane(0).set("key", "value"));
  EXPECT_TRUE(eventually([&] {
    const auto read = plane(1).get("key");
    return read && *read == "value";
  }));
  EXPECT_TRUE(eventually([&] { return plane(0).view().whole(); }));
}

}  // namespace
}  // namespace hocket
