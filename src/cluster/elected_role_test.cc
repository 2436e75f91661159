#include "cluster/elected_role.h"

#include "cluster/etcd_process_testing.h"
#include "cluster/ranks_testing.h"

namespace hocket {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using Link = TestProxy::Link;

// After its end or silence another rank coordinates within this time.
constexpr Duration kTakenOver = seconds(6);

// Ranks that find each other by real servers of etcd. Each reaches etcd through a proxy of its own.
class ElectedRanks : public Ranks {
 protected:
  void start_etcd(int count) {
    if (EtcdProcess::program().empty()) GTEST_SKIP() << "etcd is not installed: etcd-server";
    servers_ = EtcdProcess::start(count);
    ASSERT_FALSE(servers_.empty()) << "etcd does not start";
  }
  ClusterOptions by_etcd(int rank) {
    ClusterOptions made = options(0);
    made.init_addr = {};
    EtcdAddress address;
    for (const auto& server : servers_) {
      auto& proxy = proxies_[static_cast<size_t>(rank)].emplace_back(
          std::make_unique<TestProxy>(server->port()));
      address.servers.push_back({"127.0.0.1", proxy->port()});
    }
    made.store = address;
    return made;
  }
  void start_elected(int rank) {
    auto made = ControlPlane::join(by_etcd(rank), identity(rank));
    ASSERT_TRUE(made) << made.error().message;
    planes_[static_cast<size_t>(rank)] = *std::move(made);
  }
  void start_ranks(int num_ranks, int num_servers = 1) {
    num_ranks_ = num_ranks;
    planes_.resize(static_cast<size_t>(num_ranks));
    proxies_.resize(static_cast<size_t>(num_ranks));
    start_etcd(num_servers);
    if (IsSkipped() || HasFatalFailure()) return;
    for (int rank = 0; rank < num_ranks; ++rank) start_elected(rank);
    enter_all();
  }
  void etcd_link(int rank, Link link) {
    for (const auto& proxy : proxies_[static_cast<size_t>(rank)]) proxy->set(link);
  }
  // Returns the rank that coordinates by the view of `rank`.
  int coordinator(int rank) { return plane(rank).view().coordinator; }
  void expect_whole(const std::vector<int>& ranks, uint32_t after) {
    for (const int rank : ranks)
      EXPECT_TRUE(eventually([&] {
        const ClusterView view = plane(rank).view();
        return view.whole() && view.epoch > after;
      })) << rank
          << ": " << missing(plane(rank).view());
  }

  std::vector<std::unique_ptr<EtcdProcess>> servers_;
  std::vector<std::vector<std::unique_ptr<TestProxy>>> proxies_;

  void TearDown() override { planes_.clear(); }
};

TEST_F(ElectedRanks, MeetAndCoordinateWithoutAnAddress) {
  start_ranks(3);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_EQ(coordinator(2), 0);
  EXPECT_EQ(plane(0).view().epoch, plane(2).view().epoch);
  EXPECT_EQ(plane(0).status().size(), 3u);
  EXPECT_TRUE(plane(1).status().empty());
  EXPECT_EQ(plane(1).local_host(), "127.0.0.1");
  ASSERT_TRUE(plane(1).set("a", "1"));
  EXPECT_EQ(plane(2).wait("a", kPatience), "1");
  EXPECT_EQ(plane(0).get("a"), "1");
}

TEST_F(ElectedRanks, AnotherCoordinatesWhenItLeavesAndItsRankComesBack) {
  start_ranks(3);
  if (IsSkipped() || HasFatalFailure()) return;
  const uint32_t first = plane(1).view().epoch;
  planes_[0].reset();
  EXPECT_TRUE(all_lost(0, {1, 2}));
  EXPECT_TRUE(eventually([&] { return coordinator(1) != 0 && coordinator(1) == coordinator(2); },
                         kTakenOver));
  EXPECT_FALSE(plane(1).view().whole());
  start_elected(0);
  enter_all();
  EXPECT_NE(coordinator(0), 0);
  for (int rank = 0; rank < 3; ++rank) EXPECT_GT(plane(rank).view().epoch, first);
  EXPECT_EQ(plane(0).view().epoch, plane(1).view().epoch);
}

TEST_F(ElectedRanks, ALossOfAnotherRankIsOneOfRanksAsEver) {
  start_ranks(3);
  if (IsSkipped() || HasFatalFailure()) return;
  const uint32_t first = plane(0).view().epoch;
  planes_[2].reset();
  EXPECT_TRUE(all_lost(2, {0, 1}));
  EXPECT_EQ(coordinator(1), 0);
  start_elected(2);
  enter_all();
  EXPECT_GT(plane(2).view().epoch, first);
}

TEST_F(ElectedRanks, GoOnWithoutEtcdAndTakeBackWhoIsLostWhenItIsBack) {
  start_ranks(3);
  if (IsSkipped() || HasFatalFailure()) return;
  const uint32_t first = plane(0).view().epoch;
  servers_[0]->kill();
  // Longer than any lease: nobody leaves the epoch.
  const TimePoint until = RealClock().now() + seconds(6);
  while (RealClock().now() < until) {
    for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(plane(rank).aborted().load(), 0u);
    std::this_thread::sleep_for(milliseconds(20));
  }
  // A step that is given up ends the epoch, and there is no other one while etcd is away.
  plane(1).abort("a test");
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(eventually([&] { return plane(rank).view().over; })) << rank;
  EXPECT_EQ(plane(2).view().epoch, first);
  EXPECT_THAT(missing(plane(2).view()), HasSubstr("etcd has not taken the next one"));
  EXPECT_FALSE(plane(2).enter(first));
  servers_[0]->start();
  enter_all();
  EXPECT_GT(plane(2).view().epoch, first);
  EXPECT_EQ(plane(2).view().epoch, plane(0).view().epoch);
}

TEST_F(ElectedRanks, ACoordinatorCutOffFromEtcdKeepsItsRanksUntilOneOfThemLeaves) {
  start_ranks(3);
  if (IsSkipped() || HasFatalFailure()) return;
  const uint32_t first = plane(0).view().epoch;
  etcd_link(0, Link::frozen);
  const TimePoint until = RealClock().now() + seconds(6);  // its lease ends meanwhile
  while (RealClock().now() < until) {
    for (int rank = 0; rank < 3; ++rank) ASSERT_EQ(plane(rank).aborted().load(), 0u);
    std::this_thread::sleep_for(milliseconds(20));
  }
  // Rank 2 is started again, finds nobody on the seat, and takes it: the others follow it.
  planes_[2].reset();
  start_elected(2);
  EXPECT_TRUE(eventually([&] { return coordinator(1) == 2; }));
  EXPECT_NE(plane(0).aborted().load(), 0u);
  EXPECT_FALSE(plane(1).view().whole());
  EXPECT_FALSE(plane(0).view().whole());
  etcd_link(0, Link::up);
  enter_all();
  EXPECT_EQ(coordinator(0), 2);
  EXPECT_GT(plane(0).view().epoch, first);
}

// The test holds the seat for a rank 0 whose port refuses, and which is back at the same port in
// another term. An entry of another model keeps rank 1 from the seat itself.
TEST_F(ElectedRanks, ARefusalOfOneTermDoesNotEndTheNext) {
  num_ranks_ = 2;
  proxies_.resize(2);
  start_etcd(1);
  if (IsSkipped() || HasFatalFailure()) return;
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback), 0);
  const SocketAddress address = local_address(listener);  // it refuses until it listens
  EtcdClient etcd({.servers = {{"127.0.0.1", servers_[0]->port()}}});
  const std::string seat = "/hocket/hocket/coordinator", holder = "boot 0 " + address.text();
  const auto entry = [&] {
    const auto read = etcd.range(seat, 1);
    EXPECT_TRUE(read);
    return read && !read->entries.empty() ? std::optional(read->entries.front()) : std::nullopt;
  };
  ASSERT_TRUE(etcd.swap({.puts = {{.key = "/hocket/hocket/rank/0", .value = "boot other h0"}}}));
  ASSERT_TRUE(etcd.swap({.puts = {{.key = seat, .value = holder}}}));
  ClusterOptions given = by_etcd(1);
  given.redial = seconds(3);  // so the port is not asked again before the next term
  given.rank_wait = seconds(30);
  auto joins = std::async(std::launch::async,
                          [&] { return ControlPlane::join(given, identity(1)).has_value(); });
  ASSERT_TRUE(eventually([&] { return !entry(); })) << "the port refused";
  ASSERT_EQ(listen(listener.get(), 8), 0);
  ASSERT_TRUE(etcd.swap({.puts = {{.key = seat, .value = holder}}}));
  const int64_t term = entry().value_or(EtcdEntry()).create_revision;
  ASSERT_GT(term, 0);
  Fd dialled;
  ASSERT_TRUE(eventually([&] {
    dialled = Fd(accept(listener.get(), nullptr, nullptr));
    return static_cast<bool>(dialled);
  })) << "the port was not asked again";
  std::string without_token;  // ends the wait of the rank
  append_frame(without_token, HelloMessage{});
  ASSERT_EQ(send(dialled.get(), without_token.data(), without_token.size(), MSG_NOSIGNAL),
            std::ssize(without_token));
  EXPECT_FALSE(joins.get());
  EXPECT_EQ(entry().value_or(EtcdEntry()).create_revision, term) << "the term was ended";
}

TEST_F(ElectedRanks, OneOfThreeServersIsKilled) {
  start_ranks(2, 3);
  if (IsSkipped() || HasFatalFailure()) return;
  const uint32_t first = plane(0).view().epoch;
  servers_[0]->kill();
  std::this_thread::sleep_for(seconds(1));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(plane(rank).aborted().load(), 0u);
  // Two of three are enough for every change.
  planes_[0].reset();
  EXPECT_TRUE(all_lost(0, {1}));
  EXPECT_TRUE(eventually([&] { return coordinator(1) == 1; }, kTakenOver));
  start_elected(0);
  enter_all();
  EXPECT_GT(plane(0).view().epoch, first);
}

TEST_F(ElectedRanks, AllStartAtOnceAndOneCoordinates) {
  num_ranks_ = 4;
  planes_.resize(4);
  proxies_.resize(4);
  start_etcd(1);
  if (IsSkipped() || HasFatalFailure()) return;
  std::vector<std::future<Result<Plane>>> joins;
  for (int rank = 0; rank < 4; ++rank)
    joins.push_back(std::async(std::launch::async, [this, rank, given = by_etcd(rank)] {
      return ControlPlane::join(given, identity(rank));
    }));
  for (size_t rank = 0; rank < 4; ++rank) {
    auto joined = joins[rank].get();
    ASSERT_TRUE(joined) << joined.error().message;
    planes_[rank] = *std::move(joined);
  }
  enter_all();
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(coordinator(rank), coordinator(0));
}

TEST_F(ElectedRanks, AnotherModelIsRefused) {
  start_ranks(2);
  if (IsSkipped() || HasFatalFailure()) return;
  planes_[1].reset();
  Identity other = identity(1);
  other.model_hash = "another";
  const auto joined = ControlPlane::join(by_etcd(1), other);
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("the model hash differs"));
}

TEST_F(ElectedRanks, WithoutEtcdARankSaysSoAndEnds) {
  num_ranks_ = 2;
  ClusterOptions nowhere = options(0);
  nowhere.init_addr = {};
  nowhere.store = EtcdAddress{.servers = {{"127.0.0.1", TestProxy::free_port()}}};
  nowhere.rank_wait = milliseconds(700);
  const auto joined = ControlPlane::join(nowhere, identity(1));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(joined.error().message,
              HasSubstr("a coordinator was not there for 0.7 s: etcd: 127"));
  EXPECT_THAT(joined.error().message, HasSubstr("Connection refused"));
}

}  // namespace
}  // namespace hocket
