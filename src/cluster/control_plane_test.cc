#include "cluster/control_plane.h"

#include <ctime>

#include "cluster/coordinator.h"
#include "cluster/ranks_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;
using Link = TestProxy::Link;

class ControlPlaneTest : public Ranks {};

TEST_F(ControlPlaneTest, FourRanksMeet) {
  start_all(4);
  for (int rank = 0; rank < 4; ++rank) {
    const ClusterView view = plane(rank).view();
    EXPECT_TRUE(eventually([&] { return plane(rank).view() == plane(0).view(); }));
    EXPECT_EQ(view.epoch, 1u);
    EXPECT_EQ(view.members[3].identity.host, "h3");
    EXPECT_EQ(view.members[2].identity.boot_id.size(), 16u);
    EXPECT_EQ(plane(rank).local_host(), "127.0.0.1");
  }
}

TEST_F(ControlPlaneTest, WhoListensEverywhereNamesOneAddress) {
  num_ranks_ = 2;
  ClusterOptions everywhere = options(0);
  everywhere.init_addr.host = "0.0.0.0";
  const auto made = ControlPlane::join(everywhere, identity(0));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(listen_on(resolve({(*made)->local_host(), 0})->front()));
  EXPECT_NE((*made)->local_host(), "0.0.0.0");
}

TEST_F(ControlPlaneTest, RankZeroMayComeLast) {
  const uint16_t port = TestProxy::free_port();
  auto early = std::async(std::launch::async,
                          [&] { return ControlPlane::join(options(port), identity(1)); });
  // Rank 1 dials in vain at least once.
  EXPECT_EQ(early.wait_for(milliseconds(250)), std::future_status::timeout);
  start_rank_0(port);
  auto joined = early.get();
  ASSERT_TRUE(joined) << joined.error().message;
  planes_[1] = *std::move(joined);
  enter_all();
}

TEST_F(ControlPlaneTest, RankZeroWaitsForItsOwnName) {
  ClusterOptions nameless = options(TestProxy::free_port());
  nameless.init_addr.host = "no name";
  nameless.rank_wait = milliseconds(250);
  const TimePoint began = RealClock().now();
  const auto joined = ControlPlane::join(nameless, identity(0));
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("cannot find the host no name"));
  EXPECT_GE(RealClock().now() - began, milliseconds(250));
}

TEST_F(ControlPlaneTest, WaitingForRankZeroEnds) {
  ClusterOptions impatient = options(TestProxy::free_port());
  impatient.rank_wait = milliseconds(300);
  const auto joined = ControlPlane::join(impatient, identity(1));
  EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(joined.error().message, HasSubstr("was not there for 0.3 s"));
  EXPECT_THAT(joined.error().message, HasSubstr("refused"));
  EXPECT_THAT(joined.error().fix, HasSubstr("--rank-wait"));
}

TEST_F(ControlPlaneTest, WaitingForOthersNamesThem) {
  num_ranks_ = 3;
  start_rank_0();
  start(1, port_);
  const auto view = plane(0).wait_epoch(milliseconds(50));
  EXPECT_EQ(view.error().code, ErrorCode::timed_out);
  EXPECT_THAT(view.error().message, HasSubstr("rank 2 is not there"));
  EXPECT_FALSE(plane(0).enter(0));
  EXPECT_NE(plane(0).aborted().load(), 0u);
}

TEST_F(ControlPlaneTest, WhoDisagreesIsToldWhy) {
  start_rank_0();
  Identity other = identity(1);
  other.model_hash = "other";
  const auto joined = ControlPlane::join(options(port_), other);
  EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
  EXPECT_EQ(joined.error().message,
            "rank 0 refuses this rank: the model hash differs: rank 0 (h0) has m, rank 1 (h1) has "
            "other");
  EXPECT_EQ(joined.error().fix, "give all ranks the same model files");
  start(1, port_);
  enter_all();
}

TEST_F(ControlPlaneTest, RanksKnowWhereTheOthersListenForDatagrams) {
  start_all(3);
  for (const int rank : {0, 1, 2})
    for (const int other : {1, 2})
      EXPECT_THAT(plane(rank).view().members[static_cast<size_t>(other)].identity.address,
                  testing::StartsWith("127.0.0.1:"));
  std::this_thread::sleep_for(milliseconds(1000));  // longer than lost_after
  for (const int rank : {0, 1, 2}) EXPECT_EQ(plane(rank).aborted().load(), 0u) << rank;
}

TEST_F(ControlPlaneTest, ADeadRankIsKnownAtOnce) {
  start_all(4, 2);
  const TimePoint then = RealClock().now();
  proxy_->set(Link::cut);
  EXPECT_TRUE(all_lost(2, {0, 1, 3}));
  EXPECT_LT(to_ms(RealClock().now() - then), 550) << "before it would be lost by silence";
  for (const int rank : {0, 1, 3})
    EXPECT_EQ(plane(rank).view().why, "rank 2 (h2) ended its connection");
  // Rank 2 itself counts rank 0 as lost, and knows that its epoch is over.
  EXPECT_TRUE(all_lost(0, {2}));
  EXPECT_FALSE(plane(2).enter(1));
}

TEST_F(ControlPlaneTest, ASilentRankIsLostAndComesBackByItself) {
  start_all(4, 2);
  const TimePoint then = RealClock().now();
  proxy_->set(Link::frozen);
  EXPECT_TRUE(all_lost(2, {0, 1, 3}));
  EXPECT_GE(to_ms(RealClock().now() - then), 500);
  EXPECT_THAT(plane(1).view().why, HasSubstr("rank 2 (h2) is silent for 0."));
  EXPECT_TRUE(all_lost(0, {2}));
  proxy_->set(Link::up);
  enter_all();
  EXPECT_GE(plane(3).view().epoch, 3u);
}

TEST_F(ControlPlaneTest, AnOutageOfTwoThirdsOfThePatienceIsSurvived) {
  start_all(3, 2);
  proxy_->set(Link::frozen);
  EXPECT_TRUE(eventually([&] { return plane(0).status()[2].suspect; }));
  std::this_thread::sleep_for(milliseconds(200));  // 400 ms in all
  proxy_->set(Link::up);
  EXPECT_TRUE(eventually([&] { return !plane(0).status()[2].suspect; }));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(plane(rank).view().epoch, 1u);
    EXPECT_EQ(plane(rank).aborted().load(), 0u);
  }
}

TEST_F(ControlPlaneTest, ALinkThatEndsConnectionsAndIsBackAtOnceIsSurvived) {
  start_all(2, 1);
  proxy_->set(Link::cut);
  EXPECT_TRUE(eventually([&] { return plane(1).get("x").error().code == ErrorCode::lost_rank; }));
  proxy_->set(Link::up);
  EXPECT_TRUE(eventually([&] { return plane(1).set("x", "1").has_value(); }));
  EXPECT_EQ(plane(0).view().epoch, 1u);
  EXPECT_EQ(plane(1).aborted().load(), 0u);
}

// Or the rank would be out of an epoch that all others hold for whole.
TEST_F(ControlPlaneTest, AReportWaitsForTheConnection) {
  start_all(2, 1);
  proxy_->set(Link::cut);
  EXPECT_TRUE(eventually([&] { return plane(1).get("x").error().code == ErrorCode::lost_rank; }));
  plane(1).abort("a head is damaged");
  proxy_->set(Link::up);
  EXPECT_TRUE(eventually([&] { return plane(0).view().epoch == 2; }));
  EXPECT_EQ(plane(0).view().why, "rank 1 (h1) gave up the step: a head is damaged");
}

TEST_F(ControlPlaneTest, AStuckEngineIsLostThoughItsProcessLives) {
  start_all(3);
  for (int rank = 0; rank < 3; ++rank) {
    plane(rank).own_heartbeat().begin(9, milliseconds(100));
    plane(rank).own_heartbeat().reached(4);
    if (rank != 1) plane(rank).own_heartbeat().waiting();
  }
  EXPECT_TRUE(all_lost(1, {0, 1, 2}));
  EXPECT_THAT(plane(2).view().why, HasSubstr("rank 1 (h1) makes no progress in step 9, stage 4"));
  EXPECT_FALSE(plane(0).wait_epoch(milliseconds(150))) << "its step is open still";
  for (int rank = 0; rank < 3; ++rank) plane(rank).own_heartbeat().end();
  enter_all();
}

TEST_F(ControlPlaneTest, ASlowEngineIsNotDead) {
  start_all(2);
  plane(1).own_heartbeat().begin(9, milliseconds(2000));
  EXPECT_TRUE(eventually([&] { return plane(0).status()[1].heartbeat.step == 9; }));
  std::this_thread::sleep_for(milliseconds(800));
  EXPECT_EQ(plane(0).view().epoch, 1u);
}

TEST_F(ControlPlaneTest, ARestartedRankJoinsANewEpoch) {
  start_all(3);
  const std::string old_id = plane(1).self().boot_id;
  planes_[1].reset();
  EXPECT_TRUE(all_lost(1, {0, 2}));
  EXPECT_THAT(plane(2).view().why, HasSubstr("rank 1 (h1) leaves"));
  start(1, port_);
  enter_all();
  EXPECT_EQ(plane(2).view().epoch, 3u);
  EXPECT_NE(plane(2).view().members[1].identity.boot_id, old_id);
}

// The others have gone on without it, and continue in the same epoch.
TEST_F(ControlPlaneTest, WhoComesBackWithOtherTermsIsRefused) {
  tolerate_ranks_ = 1;
  start_all(3);
  for (const Plane& one : planes_) one->own_heartbeat().ready("8 rows");
  ASSERT_TRUE(eventually([&] { return plane(0).view().began; }));
  planes_[2].reset();
  ASSERT_TRUE(eventually([&] { return plane(1).view().serves() && !plane(1).view().whole(); }));
  const uint32_t epoch = plane(0).view().epoch;
  start(2, port_);
  EXPECT_FALSE(plane(2).failure());
  plane(2).own_heartbeat().ready("9 rows");
  ASSERT_TRUE(eventually([&] { return plane(2).failure().has_value(); }));
  EXPECT_THAT(plane(2).failure()->message, HasSubstr("rank 0 (h0) has 8 rows, rank 2 (h2) has 9"));
  EXPECT_EQ(plane(0).view().epoch, epoch);
  EXPECT_TRUE(plane(1).view().serves());
  planes_[2].reset();
  start(2, port_);
  plane(2).own_heartbeat().ready("8 rows");
  EXPECT_TRUE(eventually([&] { return plane(1).view().whole(); }));
}

TEST_F(ControlPlaneTest, ASecondProcessOfARankWaitsForTheFirst) {
  start_all(2);
  ClusterOptions impatient = options(port_);
  impatient.rank_wait = milliseconds(400);
  const auto second = ControlPlane::join(impatient, identity(1));
  EXPECT_THAT(second.error().message, HasSubstr("rank 1 (h1) is there already"));
  EXPECT_EQ(plane(0).view().epoch, 1u);

  auto third = std::async(std::launch::async,
                          [&] { return ControlPlane::join(options(port_), identity(1)); });
  EXPECT_EQ(third.wait_for(milliseconds(250)), std::future_status::timeout);
  planes_[1].reset();
  auto joined = third.get();
  ASSERT_TRUE(joined) << joined.error().message;
  planes_[1] = *std::move(joined);
  enter_all();
}

TEST_F(ControlPlaneTest, RankZeroIsLostAndBack) {
  start_all(3);
  ASSERT_TRUE(plane(1).set("key", "value"));
  const uint16_t port = port_;
  planes_[0].reset();
  EXPECT_TRUE(all_lost(0, {1, 2}));
  EXPECT_THAT(plane(1).view().why, HasSubstr("rank 0 (h0) leaves"));
  EXPECT_EQ(plane(1).get("key").error().code, ErrorCode::lost_rank);
  EXPECT_FALSE(plane(1).failure());
  start_rank_0(port);
  enter_all();
  EXPECT_GT(plane(2).view().epoch, 1u);
  EXPECT_EQ(plane(0).view().epoch, plane(2).view().epoch);
  EXPECT_EQ(plane(1).get("key").error().code, ErrorCode::not_found);
}

TEST_F(ControlPlaneTest, WhoWaitsTooLongForRankZeroSaysSo) {
  start_rank_0();
  ClusterOptions impatient = options(port_);
  impatient.rank_wait = milliseconds(300);
  auto joined = ControlPlane::join(impatient, identity(1));
  ASSERT_TRUE(joined);
  planes_[0].reset();
  EXPECT_TRUE(eventually([&] { return (*joined)->failure().has_value(); }));
  EXPECT_EQ((*joined)->failure()->code, ErrorCode::lost_rank);
  EXPECT_THAT((*joined)->failure()->message, HasSubstr("rank 0 (h0) leaves"));
  EXPECT_EQ((*joined)->wait_epoch(kPatience).error().message, (*joined)->failure()->message);
}

TEST_F(ControlPlaneTest, WhatTheDataPlaneMissesReachesAll) {
  start_all(4);
  plane(1).report_lost(3, "no combine of layer 7");
  EXPECT_NE(plane(1).aborted().load(), 0u) << "at once";
  EXPECT_FALSE(plane(1).enter(1));
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(eventually([&] { return plane(rank).view().epoch >= 2; }));
  EXPECT_EQ(plane(0).view().why, "rank 3 (h3) is missed by rank 1 (h1): no combine of layer 7");
  enter_all();
  EXPECT_EQ(plane(2).view().epoch, 3u);
}

TEST_F(ControlPlaneTest, AnAbortReachesAll) {
  start_all(4);
  plane(2).abort("a head is damaged");
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(eventually([&] { return plane(rank).aborted().load() != 0; }));
  enter_all();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(plane(rank).view().epoch, 2u);
  EXPECT_EQ(plane(3).view().why, "rank 2 (h2) gave up the step: a head is damaged");
}

TEST_F(ControlPlaneTest, TheStoreServesAllRanks) {
  start_all(3);
  EXPECT_TRUE(plane(1).set("a", std::string("\0\1", 2)));
  EXPECT_EQ(plane(0).get("a").value(), std::string("\0\1", 2));
  EXPECT_EQ(plane(2).get("none").error().code, ErrorCode::not_found);
  EXPECT_EQ(plane(1).add("n", 2).value(), 2);
  EXPECT_EQ(plane(0).add("n", 3).value(), 5);

  auto waiting = std::async(std::launch::async, [&] { return plane(2).wait("late", kPatience); });
  EXPECT_EQ(plane(0).wait("never", milliseconds(30)).error().code, ErrorCode::timed_out);
  EXPECT_TRUE(plane(1).set("late", "there", milliseconds(100)));
  EXPECT_EQ(waiting.get().value(), "there");
  EXPECT_TRUE(eventually([&] { return !plane(0).get("late").has_value(); })) << "a lease ends";

  EXPECT_TRUE(plane(1).erase("a"));
  EXPECT_FALSE(plane(0).get("a"));
  const std::string big(kMaxStoreValueBytes, 'x');
  EXPECT_TRUE(plane(1).set("big", big));
  EXPECT_EQ(plane(2).get("big").value(), big);
  EXPECT_EQ(plane(1).set("big", big + "x").error().code, ErrorCode::bad_value);
}

TEST_F(ControlPlaneTest, LoadingIsShownOnRankZero) {
  start_all(3);
  plane(1).own_heartbeat().progress(3, 10);
  plane(2).own_heartbeat().progress(9, 10);
  EXPECT_TRUE(eventually([&] {
    const auto status = plane(0).status();
    return status[1].heartbeat.loaded == 3 && status[2].heartbeat.loaded == 9;
  }));
  EXPECT_EQ(plane(0).status()[2].host, "h2");
}

TEST_F(ControlPlaneTest, SleepsWhenNothingHappens) {
  start_all(4);
  const auto cpu_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  proxy_.reset();
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_LT(cpu_seconds() - before, 0.1) << "a thread that spins takes 0.4";
}

TEST(CoordinatorTest, ABusyPortIsReportedWithTheFlagThatChoseIt) {
  const auto taken = listen_on(TestProxy::loopback(0));
  const HostPort at{"127.0.0.1", local_address(*taken).port()};
  ClusterOptions options;
  const auto of_rank_0 = Coordinator::listen(options, at, Duration::zero());
  ASSERT_FALSE(of_rank_0);
  EXPECT_EQ(of_rank_0.error().code, ErrorCode::port_in_use);
  EXPECT_EQ(of_rank_0.error().param, "dist-init-addr");
  EXPECT_THAT(of_rank_0.error().message, HasSubstr("rank 0 cannot coordinate: cannot listen at"));
  options.store = EtcdAddress{};
  const auto of_any = Coordinator::listen(options, at, Duration::zero());
  ASSERT_FALSE(of_any);
  EXPECT_EQ(of_any.error().param, "cluster-listen");
  EXPECT_THAT(of_any.error().message, HasSubstr("this rank cannot coordinate"));
}

}  // namespace
}  // namespace hocket
