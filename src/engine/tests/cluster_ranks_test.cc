// Tests ranks with a control plane and UCX between them, as in processes on several hosts: answers
// have the bits of one rank alone, and a rank may leave and come back.
#include <unistd.h>

#include <filesystem>

#include "engine/tests/cluster_ranks.h"
#include "engine/tests/folder_copy.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::milliseconds;

TEST_P(ClusterRanks, GiveTheAnswersOfOneRankAlone) {
  ASSERT_TRUE(all_met());
  ASSERT_NO_FATAL_FAILURE(expect_the_same_answers());
  EXPECT_NE(service(0).engine().parts().cluster, nullptr);
  EXPECT_EQ(std::ssize(service(0).engine().loads()), num_ranks());
}

// Requests of every kind run on the other ranks while rank 1 goes, twice.
TEST_P(ClusterRanks, RequestsGoOnWithTheSameBitsWhenOneThatWentIsBack) {
  constexpr int kRequests = 8;
  std::vector<RequestInput> inputs = traffic(kRequests);
  for (RequestInput& input : inputs) {
    input.sampling.max_new_tokens += 250;
    input.sampling.ignore_eos = true;
  }
  ServerSettings one = settings_of(kBundled, 1);
  one.model.context_length = 2048;
  const std::vector<Answer> want = alone(one, inputs);
  ASSERT_TRUE(all_met());
  std::vector<std::pair<int, RequestId>> running;
  for (RequestInput& input : inputs) {
    const int other = static_cast<int>(running.size()) % (num_ranks() - 1);
    const int rank = other == 0 ? 0 : other + 1;
    const auto id = service(rank).submit(std::move(input));
    ASSERT_TRUE(id.has_value()) << id.error().message;
    running.emplace_back(rank, *id);
  }
  const Answer& first = service(0).answer(running.front().second);
  for (const size_t tokens : {5u, 60u}) {
    ASSERT_TRUE(service(0).read_until([&] { return first.tokens.size() > tokens || first.done; }));
    ASSERT_FALSE(first.done) << first.summary.error.message;
    services_[1].reset();
    for (const int rank : {0, num_ranks() - 1}) {
      if (rank == 1) continue;
      ASSERT_TRUE(service(rank).read_until(
          [&] { return service(rank).engine().stats().lost.has_value(); }));
      const auto late = service(rank).submit(long_one(9));
      ASSERT_FALSE(late.has_value());
      expect_rank_1(late.error());
    }
    services_[1] = make(1);
    ASSERT_TRUE(services_[1]->works());
    ASSERT_TRUE(all_met());
  }
  for (size_t i = 0; i < running.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const auto& [rank, id] = running[i];
    const Answer& got = service(rank).answer(id);
    ASSERT_TRUE(service(rank).read_until([&] { return got.done; }));
    ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
  }
  ASSERT_NO_FATAL_FAILURE(expect_the_same_answers());
}

class ImpatientClusterRanks : public ClusterRanks {
 protected:
  // Rank 0 lets requests end at once, the others later.
  double lost_rank_wait_s() const override { return services_.empty() ? 0 : 0.3; }
};

TEST_P(ImpatientClusterRanks, RequestsThatWaitTooLongEndWithItsName) {
  ASSERT_TRUE(all_met());
  std::vector<std::pair<int, RequestId>> running;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (rank == 1) continue;
    RequestInput input = long_one(rank);
    input.sampling.max_new_tokens = 1500;
    const auto id = service(rank).submit(std::move(input));
    ASSERT_TRUE(id.has_value()) << id.error().message;
    running.emplace_back(rank, *id);
  }
  const Answer& first = service(0).answer(running.front().second);
  ASSERT_TRUE(service(0).read_until([&] { return first.tokens.size() > 3 || first.done; }));
  ASSERT_FALSE(first.done) << first.summary.error.message;
  services_[1].reset();
  for (const auto& [rank, id] : running) {
    ASSERT_TRUE(service(rank).read_until([&] { return service(rank).answer(id).done; }));
    EXPECT_EQ(service(rank).answer(id).summary.finish, FinishReason::error);
    expect_rank_1(service(rank).answer(id).summary.error);
    const auto late = service(rank).submit(long_one(9));
    ASSERT_FALSE(late.has_value());
    expect_rank_1(late.error());
  }
  services_[1] = make(1);
  ASSERT_TRUE(services_[1]->works());
  ASSERT_TRUE(all_met());
  ASSERT_NO_FATAL_FAILURE(expect_the_same_answers());
}

INSTANTIATE_TEST_SUITE_P(Ways, ImpatientClusterRanks,
                         ::testing::Values(ClusterCase{"memory4", ucx_shared_memory, 4},
                                           ClusterCase{"memory2_overlapped", ucx_shared_memory, 2,
                                                       "on"}),
                         [](const auto& param) { return std::string(param.param.name); });

// Experts have moved when a rank is lost, and the files that they came from change, or go away.
class MovedClusterRanks : public ClusterRanks {
 protected:
  double lost_rank_wait_s() const override { return 1; }
  void change(ServerSettings& settings) const override {
    settings.model.model_path = copy_.path;
    settings.parallel.enable_eplb = true;
    settings.parallel.eplb_rebalance_num_iterations = 3;
  }
  const FolderCopy copy_{kBundledFolder};
};

TEST_P(MovedClusterRanks, RequestsWaitNoLongerForExpertsThatCannotComeHome) {
  ASSERT_TRUE(all_met());
  const TimePoint deadline = RealClock().now() + kPatience;
  while (service(0).engine().stats().moves->layers_total == 0) {
    ASSERT_LT(RealClock().now(), deadline) << "nothing moved";
    ASSERT_NO_FATAL_FAILURE(expect_the_same_answers());
  }
  RequestInput input = long_one(1);
  input.sampling.max_new_tokens = 1500;
  const auto id = service(0).submit(std::move(input));
  ASSERT_TRUE(id.has_value()) << id.error().message;
  const Answer& answer = service(0).answer(*id);
  ASSERT_TRUE(service(0).read_until([&] { return answer.tokens.size() > 3 || answer.done; }));
  ASSERT_FALSE(answer.done) << answer.summary.error.message;
  copy_.change();
  services_[1].reset();
  ASSERT_TRUE(service(0).read_until([&] { return answer.done; }));
  EXPECT_EQ(answer.summary.finish, FinishReason::error);
  const auto expect_said = [](const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::lost_rank);
    EXPECT_NE(error.message.find("rank 0 cannot load the experts that it needs"), std::string::npos)
        << error.message;
    EXPECT_NE(error.message.find("have changed since the start"), std::string::npos)
        << error.message;
  };
  expect_said(answer.summary.error);
  ASSERT_TRUE(service(0).read_until([&] { return service(0).engine().failure().has_value(); }));
  expect_said(*service(0).engine().failure());
  const auto late = service(0).submit(long_one(9));
  ASSERT_FALSE(late.has_value());
  expect_said(late.error());
}

INSTANTIATE_TEST_SUITE_P(Ways, MovedClusterRanks,
                         ::testing::Values(ClusterCase{"memory2", ucx_shared_memory, 2}),
                         [](const auto& param) { return std::string(param.param.name); });

// Each rank has a folder of pages and computes prompts for others. Requests wait long for a lost
// rank.
class KeepingClusterRanks : public ClusterRanks {
 protected:
  KeepingClusterRanks() { std::filesystem::remove_all(folder_); }
  ~KeepingClusterRanks() override { std::filesystem::remove_all(folder_); }
  double lost_rank_wait_s() const override { return 600; }
  void change(ServerSettings& settings) const override {
    const bool is_first = services_.empty();
    settings.memory.kv_cache_dir = (folder_ / (is_first ? "0" : "1")).string();
    settings.memory.hicache_write_policy = "write_through_selective";
    settings.peers.kv_cache_listen =
        fmt::format("127.0.0.1:{}", is_first ? pages_port_ : other_pages_port_);
    settings.peers.disaggregation_mode = "prefill";
  }
  void lose_rank_1() {
    services_[1].reset();
    ASSERT_TRUE(
        service(0).read_until([&] { return service(0).engine().stats().lost.has_value(); }));
  }

  const uint16_t pages_port_ = TestProxy::free_port(), other_pages_port_ = TestProxy::free_port();
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("keeping_ranks_{}", getpid());
};

// The service that asked computes its prompts itself, and does not wait for the lost rank.
TEST_P(KeepingClusterRanks, NobodyElseWaitsForALostRank) {
  ASSERT_TRUE(all_met());
  ServerSettings settings = settings_of(kBundled, 1);
  settings.model.context_length = 2048;
  std::vector<RequestInput> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(greedy_input(random_tokens(i, 1900), 5));
  const std::vector<Answer> want = alone(settings, inputs);
  settings.memory.hicache_storage_prefetch_policy = "wait_complete";
  settings.peers.disaggregation_mode = "decode";
  settings.peers.disaggregation_prefill_url = fmt::format("127.0.0.1:{}", pages_port_);
  Service decode(settings);
  ASSERT_TRUE(decode.works());
  std::vector<RequestId> ids;
  for (const RequestInput& input : inputs) ids.push_back(*decode.submit(input));
  ASSERT_TRUE(service(0).read_until(
      [&] { return service(0).engine().stats().tier->served_prefills_total > 0; }));
  ASSERT_NO_FATAL_FAILURE(lose_rank_1());
  ASSERT_TRUE(decode.read_all());
  for (size_t i = 0; i < ids.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(expect_same(decode.answer(ids[i]), want[i]));
}

TEST_P(KeepingClusterRanks, ASessionIsSavedWhileARankIsLost) {
  ASSERT_TRUE(all_met());
  RequestInput input = greedy_input(random_tokens(1, 300), 5);
  input.session = 7;
  ASSERT_TRUE(service(0).submit(std::move(input)).has_value());
  ASSERT_TRUE(service(0).read_all());
  ASSERT_NO_FATAL_FAILURE(lose_rank_1());
  const auto saved =
      service(0).engine().change_session({.action = SessionAction::save, .session = 7, .name = 7});
  ASSERT_TRUE(saved.has_value()) << describe(saved.error());
  EXPECT_GE(saved->tokens, 288);
}

INSTANTIATE_TEST_SUITE_P(Ways, KeepingClusterRanks,
                         ::testing::Values(ClusterCase{"memory2", ucx_shared_memory, 2}),
                         [](const auto& param) { return std::string(param.param.name); });

// Another rank may have as many requests as may wait here, and when it is lost, this one has them
// all at once, before its next step.
TEST(TakenOverRequests, AllHaveRoom) {
  if (const std::string why = ucx_obstacle(ucx_shared_memory()); !why.empty()) GTEST_SKIP() << why;
  log::set_level(log::Level::off);
  ServerSettings settings = settings_of(kBundled, 2);
  settings.memory.max_queued_requests = 8192;
  const UcxOptions ucx = ucx_shared_memory();
  settings.parallel.ucx_tls = ucx.tls;
  settings.parallel.ucx_net_devices = ucx.devices;
  const HostPort at{"127.0.0.1", TestProxy::free_port()};
  auto made = Engine::create(
      {.settings = settings,
       .cluster = ClusterLaunch{.launch = {.num_ranks = 2, .rank = 0, .init_addr = at},
                                .control = {.init_addr = at, .token = "a token of sixteen"}}});
  ASSERT_TRUE(made.has_value()) << describe(made.error());
  RequestInput input = greedy_input({1, 2}, 4);
  input.taken_over = true;
  for (int i = 0; i < 2 * settings.memory.max_queued_requests; ++i) {
    input.id = Engine::next_request_id();
    const auto taken = (*made)->submit(input);
    ASSERT_TRUE(taken.has_value()) << i << ": " << taken.error().message;
  }
  log::set_level(log::Level::info);
}

class PatientClusterRanks : public ClusterRanks {
  double drain_s() const override { return to_seconds(kPatience); }
};

TEST_P(PatientClusterRanks, OneThatIsAskedToEndWaitsForTheOthersRequests) {
  ASSERT_TRUE(all_met());
  RequestInput input = long_one(1);
  input.sampling.max_new_tokens = 700;
  const auto id = service(0).submit(std::move(input));
  ASSERT_TRUE(id.has_value());
  const Answer& answer = service(0).answer(*id);
  ASSERT_TRUE(service(0).read_until([&] { return !answer.tokens.empty(); }));
  std::jthread ender([&] { services_[1].reset(); });
  bool is_refused = false;
  ASSERT_TRUE(service(0).read_until([&] {
    if (const auto late = service(0).submit(long_one(9)); !late) {
      is_refused |= !answer.done;
      expect_rank_1(late.error());
    }
    return answer.done;
  }));
  EXPECT_EQ(answer.summary.finish, FinishReason::length) << answer.summary.error.message;
  EXPECT_TRUE(is_refused);
  ender.join();
  ASSERT_TRUE(service(0).read_all());
  ASSERT_TRUE(service(0).read_until([&] { return service(0).engine().stats().lost.has_value(); }));
}

INSTANTIATE_TEST_SUITE_P(Ways, PatientClusterRanks,
                         ::testing::Values(ClusterCase{"memory2", ucx_shared_memory, 2}),
                         [](const auto& param) { return std::string(param.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Ways, ClusterRanks,
    ::testing::Values(ClusterCase{"memory2", ucx_shared_memory, 2},
                      ClusterCase{"memory4", ucx_shared_memory, 4}, ClusterCase{"tcp2", ucx_tcp, 2},
                      ClusterCase{"tcp4", ucx_tcp, 4},
                      ClusterCase{"memory2_overlapped", ucx_shared_memory, 2, "on"},
                      ClusterCase{"tcp4_overlapped", ucx_tcp, 4, "on"}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace hocket
