#include "cluster/link_monitor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

namespace hocket {
namespace {

using std::chrono::milliseconds;

class LinkMonitorTest : public ::testing::Test {
 protected:
  ClusterOptions options(std::string token) const {
    return {.store = store_,
            .token = std::move(token),
            .limits = {.heartbeat = milliseconds(250), .lost_after = std::chrono::seconds(3)}};
  }
  void add(std::string token = "a token of sixteen") {
    const int rank = static_cast<int>(watches_.size());
    const Identity self{.rank = rank, .num_ranks = 3, .boot_id = fmt::format("b{}", rank)};
    watches_.push_back(std::make_unique<LinkMonitor>(options(std::move(token)), self));
    view_.members[static_cast<size_t>(rank)] = {.state = MemberState::member, .identity = self};
    if (rank > 0 || store_)
      view_.members[static_cast<size_t>(rank)].identity.address =
          host_ + ":" + watches_.back()->port();
  }
  LinkMonitor& watch(int rank) { return *watches_[static_cast<size_t>(rank)]; }
  // Lets a heartbeat pass; the ranks in `hears` read what has arrived.
  std::optional<LinkMonitor::SilentRank> heartbeat(std::initializer_list<int> hears = {1, 2}) {
    const int other = view_.coordinator == 0 ? 1 : 0;  // this and rank 2 watch each other
    now_ += milliseconds(250);
    for (const int rank : {other, 2}) watch(rank).tick(view_, now_);
    std::this_thread::sleep_for(milliseconds(2));
    for (const int rank : hears) watch(rank).receive(now_);
    for (const int rank : {other, 2})
      if (const auto silent = watch(rank).tick(view_, now_)) return silent;
    return std::nullopt;
  }

  // Heartbeats pass in which rank 1 does not hear rank 2.
  void be_deaf(int num_beats) {
    for (int i = 0; i < num_beats; ++i) ASSERT_FALSE(heartbeat({2}).has_value()) << i;
  }

  std::optional<EtcdAddress> store_;
  std::string host_ = "127.0.0.1";
  std::vector<std::unique_ptr<LinkMonitor>> watches_;
  ClusterView view_{.epoch = 1, .members = std::vector<Member>(3)};
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(LinkMonitorTest, ARankThatIsHeardNoLongerIsNamedAfterThreeSeconds) {
  for (int rank = 0; rank < 3; ++rank) add();
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat().has_value());
  for (int i = 0; i < 11; ++i) ASSERT_FALSE(heartbeat({2}).has_value()) << i;
  const auto silent = heartbeat({2});
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->rank, 2);
  EXPECT_EQ(silent->silence, std::chrono::seconds(3));
}

TEST_F(LinkMonitorTest, RanksThatReachEachOtherByIpv6AreHeard) {
  const Fd probe(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_addr = in6addr_loopback;
  if (bind(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
    GTEST_SKIP() << "this host has no IPv6";
  host_ = "[::1]";
  for (int rank = 0; rank < 3; ++rank) add();
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat().has_value());
  be_deaf(11);
  const auto silent = heartbeat({2});
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->rank, 2);
}

// Where a link-local address lies is unknown, so nothing is sent, and nobody is judged.
TEST_F(LinkMonitorTest, LinkLocalAddressesAreNotSentTo) {
  host_ = "[fe80::1]";
  for (int rank = 0; rank < 3; ++rank) add();
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat().has_value());
}

TEST_F(LinkMonitorTest, ASilentRankIsUnheardUntilItIsHeardAgain) {
  for (int rank = 0; rank < 3; ++rank) add();
  EXPECT_EQ(watch(1).unreachable(now_).text(), "") << "it was never heard";
  ASSERT_FALSE(heartbeat().has_value());
  be_deaf(3);
  EXPECT_EQ(watch(1).unreachable(now_).text(), "");
  be_deaf(1);
  EXPECT_EQ(watch(1).unreachable(now_).text(), "2");
  EXPECT_EQ(watch(2).unreachable(now_).text(), "");
  view_.members[2].state = MemberState::connected;
  be_deaf(20);
  EXPECT_EQ(watch(1).unreachable(now_).text(), "2") << "members or not";
  ASSERT_FALSE(heartbeat().has_value());
  EXPECT_EQ(watch(1).unreachable(now_).text(), "");
}

TEST_F(LinkMonitorTest, Rank0IsWatchedWhileAnotherRankCoordinates) {
  store_.emplace();
  view_.coordinator = 1;
  for (int rank = 0; rank < 3; ++rank) add();
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat({0, 2}).has_value());
  for (int i = 0; i < 11; ++i) ASSERT_FALSE(heartbeat({2}).has_value()) << i;
  const auto silent = heartbeat({2});
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->rank, 2);
}

// While rank 2 coordinates, its address has no host.
TEST_F(LinkMonitorTest, ARankThatCoordinatedIsSentTo) {
  store_.emplace();
  for (int rank = 0; rank < 3; ++rank) add();
  const std::string address = view_.members[2].identity.address;
  view_.members[2].identity.address = watch(2).port();
  view_.coordinator = 2;
  for (const int rank : {1, 2}) watch(rank).tick(view_, now_);
  view_.members[2].identity.address = address;
  view_.coordinator = 0;
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat().has_value());
  for (int i = 0; i < 11; ++i) ASSERT_FALSE(heartbeat({1}).has_value()) << i;
  const auto silent = heartbeat({1});
  ASSERT_TRUE(silent.has_value()) << "rank 2 never heard rank 1";
  EXPECT_EQ(silent->rank, 1);
}

TEST(DatagramAddress, SuitsTheSocket) {
  const auto text = [](std::string_view address, int family) {
    const auto found = datagram_address(address, family);
    return found ? found->text() : found.error().message;
  };
  EXPECT_EQ(text("10.0.0.1:5000", AF_INET), "10.0.0.1:5000");
  EXPECT_EQ(text("[::ffff:10.0.0.1]:5000", AF_INET), "10.0.0.1:5000");
  EXPECT_EQ(text("10.0.0.1:5000", AF_INET6), "[::ffff:10.0.0.1]:5000");
  EXPECT_EQ(text("[::ffff:10.0.0.1]:5000", AF_INET6), "[::ffff:10.0.0.1]:5000");
  EXPECT_EQ(text("[2001:db8::1]:5000", AF_INET6), "[2001:db8::1]:5000");
  EXPECT_EQ(text("[2001:db8::1]:5000", AF_INET), "this host has sockets of IPv4 alone");
  EXPECT_EQ(text("[fe80::1]:5000", AF_INET6),
            "a link-local address needs the name of a network device beside it");
  EXPECT_EQ(text("h0:5000", AF_INET6), "it is no address of IPv4 or IPv6");
  EXPECT_EQ(text("5000", AF_INET6), "'5000' is not host:port");
}

TEST_F(LinkMonitorTest, ASilenceOfTwoSecondsIsSurvived) {
  for (int rank = 0; rank < 3; ++rank) add();
  ASSERT_FALSE(heartbeat().has_value());
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 8; ++i) ASSERT_FALSE(heartbeat({}).has_value());
    ASSERT_FALSE(heartbeat().has_value());
  }
}

TEST_F(LinkMonitorTest, ARankThatIsBackHasTheSameTimeAgain) {
  for (int rank = 0; rank < 3; ++rank) add();
  ASSERT_FALSE(heartbeat().has_value());
  view_.members[2].state = MemberState::connected;
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat({}).has_value());
  view_.members[2].state = MemberState::member;
  for (int i = 0; i < 12; ++i) ASSERT_FALSE(heartbeat({}).has_value()) << i;
  EXPECT_TRUE(heartbeat({}).has_value());
}

TEST_F(LinkMonitorTest, ADatagramThatComesBeforeTheIdentityOfItsRankCounts) {
  for (int rank = 0; rank < 3; ++rank) add();
  watch(2).tick(view_, now_);
  std::this_thread::sleep_for(milliseconds(2));
  watch(1).receive(now_);
  for (int i = 0; i < 12; ++i) {
    ASSERT_FALSE(watch(1).tick(view_, now_).has_value()) << i;
    now_ += milliseconds(250);
  }
  EXPECT_TRUE(watch(1).tick(view_, now_).has_value());
}

// Someone on the way records a datagram, and sends it again when the link is cut.
TEST_F(LinkMonitorTest, ADatagramThatIsSentAgainIsNotHeard) {
  for (int rank = 0; rank < 3; ++rank) add();
  ASSERT_FALSE(heartbeat({2}).has_value());
  std::array<char, 256> recorded;
  const auto length = recv(watch(1).socket().get(), recorded.data(), recorded.size(), MSG_PEEK);
  ASSERT_GT(length, 0);
  const Fd recorder(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto say_again = [&] {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(watch(1).port())));
    EXPECT_EQ(sendto(recorder.get(), recorded.data(), static_cast<size_t>(length), 0,
                     reinterpret_cast<const sockaddr*>(&to), sizeof to),
              length);
    watch(1).receive(now_);
  };
  say_again();  // the true ones are read, too
  EXPECT_FALSE(watch(1).tick(view_, now_).has_value());
  EXPECT_EQ(watch(1).unreachable(now_).text(), "");
  const auto silent_after = [&](Duration most) -> std::optional<LinkMonitor::SilentRank> {
    for (const TimePoint end = now_ + most; now_ < end;) {
      now_ += milliseconds(250);
      say_again();
      if (const auto silent = watch(1).tick(view_, now_)) return silent;
    }
    return std::nullopt;
  };
  EXPECT_TRUE(silent_after(std::chrono::seconds(4)).has_value());
  // Rank 2 is started again: what its process before said is not heard as the new one's.
  view_.members[2].identity.boot_id = "b2 again";
  EXPECT_FALSE(silent_after(std::chrono::seconds(8)).has_value()) << "it was never heard";
  // The process before is there again, and its numbers are known.
  view_.members[2].identity.boot_id = "b2";
  EXPECT_FALSE(silent_after(std::chrono::seconds(8)).has_value());
}

TEST_F(LinkMonitorTest, AnIdentityThatIsNewIsSentToAtOnce) {
  add();
  add();
  watch(1).tick(view_, now_);
  now_ += milliseconds(1);
  add();
  watch(1).tick(view_, now_);
  std::this_thread::sleep_for(milliseconds(2));
  watch(2).receive(now_);
  watch(2).tick(view_, now_);
  EXPECT_TRUE(watch(2).tick(view_, now_ + std::chrono::seconds(3)).has_value());
}

TEST_F(LinkMonitorTest, ARankThatWasNeverHeardIsNotJudged) {
  add();
  add();
  add("a token that differs");
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(heartbeat().has_value());
}

// Strangers that know the form of a datagram, and not the token.
TEST_F(LinkMonitorTest, AFloodBoundsTheWorkAndIsNoSilence) {
  for (int rank = 0; rank < 3; ++rank) add();
  const Fd stranger(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(watch(1).port())));
  std::string forged = "hocket link";
  forged.resize(forged.size() + 32 + 32, '\2');
  const auto flood = [&](int count) {
    for (int i = 0; i < count; ++i)
      static_cast<void>(sendto(stranger.get(), forged.data(), forged.size(), 0,
                               reinterpret_cast<const sockaddr*>(&to), sizeof to));
  };
  const auto has_more = [&] {
    char byte = 0;
    return recv(watch(1).socket().get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  };
  ASSERT_FALSE(heartbeat().has_value());
  // Rank 2 is heard no longer.
  for (int i = 0; i < 20; ++i) {
    flood(LinkMonitor::kFlood + 8);
    now_ += milliseconds(250);
    watch(1).receive(now_);
    ASSERT_FALSE(watch(1).tick(view_, now_).has_value()) << i;
  }
  while (has_more()) watch(1).receive(now_);
  const int bytes = 1 << 20;  // room for all of a flood, where the host allows it
  setsockopt(watch(1).socket().get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  flood(LinkMonitor::kMaxRead + 20);
  watch(1).receive(now_);
  EXPECT_TRUE(has_more()) << "one call reads a bounded number";
  watch(1).receive(now_);
  EXPECT_FALSE(has_more());
  // A few strange ones are no flood: the silence counts from the last one on.
  for (int i = 0; i < 11; ++i) {
    flood(2);
    now_ += milliseconds(250);
    watch(1).receive(now_);
    ASSERT_FALSE(watch(1).tick(view_, now_).has_value()) << i;
  }
  now_ += milliseconds(250);
  const auto silent = watch(1).tick(view_, now_);
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->rank, 2);
}

TEST_F(LinkMonitorTest, WithTwoRanksThereIsNothingToWatch) {
  LinkMonitor watch(options(""), {.rank = 1, .num_ranks = 2});
  EXPECT_EQ(watch.port(), "");
  EXPECT_FALSE(watch.tick(view_, now_).has_value());
  EXPECT_EQ(watch.next_deadline(), TimePoint::max());
}

}  // namespace
}  // namespace hocket
