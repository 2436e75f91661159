// Tests several ranks as one service: an answer has the bits that it has on one rank alone, on any
// rank and beside any traffic; and if a rank is lost, all others name it.
#include <set>

#include "base/log.h"
#include "engine/rank_setup.h"
#include "engine/tests/probe.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::milliseconds;

class Ranks : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(Ranks, GiveTheAnswersOfOneRankAlone) {
  constexpr int kRequests = 14;
  const std::vector<Answer> want = alone(settings_of(GetParam(), 1), traffic(kRequests));
  const struct {
    int num_ranks;
    const char* routing;
    double link_latency_us;
    const char* overlap_schedule = "off";
  } cases[] = {{2, "round-robin", 0},      {4, "cache-aware", 0},       {2, "shortest", 200},
               {3, "round-robin", 0},      {8, "round-robin", 0},       {2, "round-robin", 0, "on"},
               {2, "shortest", 200, "on"}, {4, "cache-aware", 0, "on"}, {3, "shortest", 0, "on"},
               {8, "round-robin", 0, "on"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", one.num_ranks, one.routing));
    ServerSettings settings = settings_of(GetParam(), one.num_ranks);
    settings.parallel.dp_routing = one.routing;
    settings.parallel.ep_link_latency_us = one.link_latency_us;
    settings.scheduler.overlap_schedule = one.overlap_schedule;
    Service service(settings);
    ASSERT_TRUE(service.works());
    std::mt19937 random(3);
    std::vector<RequestId> ids;
    std::vector<int> leaves_after;  // number of tokens; -1: stays
    for (RequestInput& input : traffic(kRequests)) {
      leaves_after.push_back(random() % 5 == 0 ? static_cast<int>(random() % 4) : -1);
      ids.push_back(*service.submit(std::move(input)));
      if (random() % 2 == 0) std::this_thread::sleep_for(milliseconds(random() % 10));
    }
    ASSERT_TRUE(service.read_until([&] {
      bool all = true;
      for (size_t i = 0; i < ids.size(); ++i) {
        const Answer& answer = service.answer(ids[i]);
        all &= answer.done;
        if (leaves_after[i] >= 0 && !answer.done && std::ssize(answer.tokens) >= leaves_after[i])
          service.engine().abort(ids[i]);
      }
      return all;
    }));
    for (size_t i = 0; i < ids.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const Answer& got = service.answer(ids[i]);
      Answer whole = want[i];
      if (got.summary.finish == FinishReason::abort) {
        ASSERT_GE(leaves_after[i], 0);
        whole.tokens.resize(std::min(whole.tokens.size(), got.tokens.size()));
        whole.logprobs.resize(std::min(whole.logprobs.size(), got.logprobs.size()));
        whole.top.resize(whole.logprobs.size());
        if (got.tokens.empty()) whole.prompt_logprobs.clear();
      } else {
        ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(got, whole));
    }
    const EngineStats stats = service.engine().stats();
    ASSERT_EQ(std::ssize(stats.ranks), one.num_ranks);
    for (const RankStats& rank : stats.ranks) {
      EXPECT_GT(rank.scheduler.prompt_tokens_total, 0u);
      EXPECT_EQ(rank.scheduler.num_private_pages, 0);
      EXPECT_EQ(rank.steps.num_overlapped > 0, one.overlap_schedule == std::string("on"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Ranks, ::testing::Values(kBundled, kMoe, kMla, kInt8Kv),
                         [](const auto& param) { return std::string(param.param.name); });

class RanksTest : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

// With steps that overlap, and without.
class ScheduledRanks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
  static ServerSettings settings(int num_ranks) {
    ServerSettings settings = settings_of(kBundled, num_ranks);
    settings.scheduler.overlap_schedule = GetParam();
    return settings;
  }
};
INSTANTIATE_TEST_SUITE_P(Overlap, ScheduledRanks, ::testing::Values("off", "on"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(ScheduledRanks, RanksWithoutWorkPlayIdleStepsAndThenSleep) {
  Service service(settings(4));
  ASSERT_TRUE(service.works());
  RequestInput input = greedy_input(random_tokens(5, 30), 8);
  input.sampling.ignore_eos = true;
  const auto id = service.submit(std::move(input));
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(service.read_all());
  EXPECT_EQ(std::ssize(service.answer(*id).tokens), 8);
  const auto idle_steps = [&] {
    std::vector<uint64_t> counts;
    for (const RankStats& rank : service.engine().stats().ranks)
      counts.push_back(rank.steps.num_idle);
    return counts;
  };
  std::this_thread::sleep_for(milliseconds(50));
  const std::vector<uint64_t> before = idle_steps();
  EXPECT_EQ(std::ranges::count(before, 0u), 1);  // the rank that had the request
  EXPECT_EQ(std::ranges::max(before), 8u);       // a prompt and seven more tokens
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(idle_steps(), before);
  EXPECT_FALSE(service.engine().stats().busy);
}

TEST_P(ScheduledRanks, StopInTheMiddleAnswersAll) {
  Service service(settings(2));
  ASSERT_TRUE(service.works());
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(*service.submit(long_one(i)));
  ASSERT_TRUE(service.read_until([&] { return service.answer(ids[0]).tokens.size() > 3; }));
  service.engine().stop();
  service.read();
  for (const RequestId id : ids) {
    ASSERT_TRUE(service.answer(id).done);
    EXPECT_EQ(service.answer(id).summary.finish, FinishReason::abort);
    EXPECT_EQ(service.answer(id).summary.error.code, ErrorCode::shutting_down);
  }
  EXPECT_EQ(service.submit(long_one(9)).error().code, ErrorCode::shutting_down);
}

TEST_P(ScheduledRanks, AStopWithNothingToDoIsPrompt) {
  const TimePoint before = RealClock().now();
  {
    Service service(settings(4));
  }
  EXPECT_LT(to_seconds(RealClock().now() - before), 20);
}

// A thread that stops ranks one after another may lose its processor in between.
TEST_P(ScheduledRanks, RanksThatAreAskedToStopOneLongAfterAnotherStopTogether) {
  Service service(settings(4));
  ASSERT_TRUE(service.works());
  const auto id = service.submit(greedy_input(random_tokens(5, 30), 4));
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(service.read_all());  // all have met
  EngineProbe::rank(service.engine(), 0).ask_to_stop();
  std::this_thread::sleep_for(milliseconds(500));
  const TimePoint before = RealClock().now();
  service.engine().stop();
  EXPECT_LT(to_seconds(RealClock().now() - before), 20);
  EXPECT_FALSE(service.engine().stats().lost.has_value());
}

TEST_P(ScheduledRanks, FlushForgetsOnAllRanksOrOnNone) {
  ServerSettings changed = settings(2);
  changed.parallel.dp_routing = "round-robin";
  Service service(changed);
  ASSERT_TRUE(service.works());
  const auto ask_both = [&] {
    int cached = 0;
    for (int i = 0; i < 2; ++i) {
      const auto id = service.submit(greedy_input(random_tokens(7, 100), 4));
      EXPECT_TRUE(service.read_all());
      cached += service.answer(*id).summary.cached_tokens;
    }
    return cached;
  };
  EXPECT_EQ(ask_both(), 0);
  EXPECT_EQ(ask_both(), 2 * 96);
  const auto busy = service.submit(long_one(1));
  ASSERT_TRUE(service.read_until([&] { return !service.answer(*busy).tokens.empty(); }));
  EXPECT_FALSE(service.engine().flush_cache());
  service.engine().abort_all();
  ASSERT_TRUE(service.read_all());
  EXPECT_EQ(ask_both(), 2 * 96);
  EXPECT_TRUE(service.read_until([&] { return service.engine().flush_cache(); }));
  EXPECT_EQ(ask_both(), 0);
}

// A way to lose a rank, and the time in which the others must notice.
struct Loss {
  const char* name;
  const char* overlap_schedule;
  void (*happen)(LoopbackHub&);
  Duration stall_timeout;
};

class LostRank : public ::testing::TestWithParam<Loss> {
 protected:
  static ServerSettings settings(int num_ranks) {
    ServerSettings settings = settings_of(kBundled, num_ranks);
    settings.scheduler.overlap_schedule = GetParam().overlap_schedule;
    return settings;
  }
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

void lose_rank_1(LoopbackHub& hub) {
  hub.lose(1);
}
void cut_rank_1(LoopbackHub& hub) {
  hub.cut(1, true);
}

void expect_lost(const Error& error) {
  EXPECT_EQ(error.code, ErrorCode::lost_rank);
  EXPECT_NE(error.message.find("rank 1"), std::string::npos) << error.message;
}

TEST_P(LostRank, EndsWhatRunsWithItsNameAndRefusesWhatComes) {
  Service service(settings(4), GetParam().stall_timeout);
  ASSERT_TRUE(service.works());
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(*service.submit(long_one(i)));
  ASSERT_TRUE(service.read_until([&] { return service.answer(ids[0]).tokens.size() > 3; }));
  GetParam().happen(EngineProbe::hub(service.engine()));
  ASSERT_TRUE(service.read_all());
  std::set<std::string> said;
  for (const RequestId id : ids) {
    EXPECT_EQ(service.answer(id).summary.finish, FinishReason::error);
    expect_lost(service.answer(id).summary.error);
    said.insert(service.answer(id).summary.error.message);
  }
  EXPECT_EQ(said.size(), 1u);  // all ranks give the same error
  const auto late = service.submit(long_one(9));
  ASSERT_FALSE(late.has_value());
  expect_lost(late.error());
  ASSERT_TRUE(service.engine().stats().lost.has_value());
  expect_lost(*service.engine().stats().lost);
  EXPECT_TRUE(service.engine().flush_cache());  // it still answers
}

TEST_P(LostRank, IsNoticedWhenSomebodyAsks) {
  Service service(settings(2), GetParam().stall_timeout);
  ASSERT_TRUE(service.works());
  GetParam().happen(EngineProbe::hub(service.engine()));
  const auto id = service.submit(long_one(1));
  if (!id) return expect_lost(id.error());
  ASSERT_TRUE(service.read_all());
  expect_lost(service.answer(*id).summary.error);
}

INSTANTIATE_TEST_SUITE_P(Ways, LostRank,
                         ::testing::Values(Loss{"gone", "off", lose_rank_1, kPatience},
                                           Loss{"cut", "off", cut_rank_1, milliseconds(500)},
                                           Loss{"gone_overlapped", "on", lose_rank_1, kPatience},
                                           Loss{"cut_overlapped", "on", cut_rank_1,
                                                milliseconds(500)}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(RanksTest, WhatTheyHave) {
  Service service(settings_of(kBundled, 4));
  ASSERT_TRUE(service.works());
  const EngineInfo& info = service.engine().info();
  EXPECT_EQ(info.num_ranks, 4);
  EXPECT_EQ(info.combine_groups, info.model.moe.num_experts);
  EXPECT_EQ(info.network, "loopback");
  ASSERT_EQ(info.ranks.size(), 4u);
  std::vector<int> experts;
  int64_t weight_bytes = 0;
  for (const RankInfo& rank : info.ranks) {
    experts.insert(experts.end(), rank.experts.begin(), rank.experts.end());
    weight_bytes += rank.weight_bytes;
    EXPECT_EQ(rank.max_total_tokens * 4, info.max_total_tokens);
  }
  EXPECT_EQ(std::ssize(experts), info.model.moe.num_experts);
  EXPECT_TRUE(std::ranges::is_sorted(experts));
  EXPECT_EQ(weight_bytes, info.weight_bytes);
  const auto whole = make_engine(settings_of(kBundled, 1));
  EXPECT_LT(info.ranks[0].weight_bytes, whole->info().weight_bytes);
  // Each rank has all attention weights.
  EXPECT_GT(info.ranks[0].weight_bytes * 4, whole->info().weight_bytes);
}

TEST_F(RanksTest, ClearErrors) {
  const auto error_of = [](const Form& form, const std::function<void(ServerSettings&)>& change) {
    ServerSettings settings = settings_of(form, 2);
    change(settings);
    const auto made = Engine::create({.settings = settings});
    return made ? std::string("none") : describe(made.error());
  };
  const auto expect = [&](const std::string& got, const char* part) {
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  const auto none = [](ServerSettings&) {};
  expect(error_of(kDense, none), "--ep-size 2 spreads experts over ranks");
  expect(error_of(kBundled, [](auto& s) { s.parallel.ep_size = 17; }),
         "--ep-size 17 is not in 1 to 16");
  expect(error_of(kBundled, [](auto& s) { s.parallel.ep_size = 0; }), "--ep-size 0");
  expect(error_of(kBundled, [](auto& s) { s.compute.combine_groups = 1; }),
         "--combine-groups, one of 2, 4, ");
  expect(error_of(kBundled, [](auto& s) { s.parallel.dp_routing = "random"; }), "random");
  expect(error_of(kBundled, [](auto& s) { s.scheduler.kv_events = true; }), "--kv-events");
  expect(error_of(kBundled,
                  [](auto& s) {
                    s.parallel.ep_size = 1;
                    s.parallel.ep_link_gbit = 1;
                  }),
         "--ep-link");
}

TEST_F(RanksTest, TheMachineIsShared) {
  Machine machine = inspect_machine();
  machine.memory_bytes = 64;
  machine.memory_available_bytes = 32;
  for (const int num_ranks : {1, 2, 4}) {
    const std::vector<Machine> shares = share_machine(machine, num_ranks);
    ASSERT_EQ(std::ssize(shares), num_ranks);
    std::multiset<int> cpus;
    for (const Machine& share : shares) {
      EXPECT_EQ(share.memory_bytes, 64 / num_ranks);
      EXPECT_EQ(share.memory_available_bytes, 32 / num_ranks);
      EXPECT_EQ(share.num_cores, std::ssize(share.cpus));
      EXPECT_GE(share.num_cores, 1);
      cpus.insert(share.cpus.begin(), share.cpus.end());
    }
    if (num_ranks <= machine.num_cores) {
      EXPECT_EQ(std::ssize(cpus), machine.num_cores);
    }
  }
}

}  // namespace
}  // namespace hocket
