// Tests only: ranks with a control plane and UCX between them, as in processes on several hosts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "cluster/proxy_testing.h"
#include "compute/comm/ucx_testing.h"
#include "engine/tests/service.h"

namespace hocket::testing {

struct ClusterCase {
  const char* name;
  UcxOptions (*ucx)();
  int num_ranks;
  const char* overlap_schedule = "off";
};

class ClusterRanks : public ::testing::TestWithParam<ClusterCase> {
 protected:
  void SetUp() override {
    log::set_level(log::Level::off);
    if (const std::string why = ucx_obstacle(GetParam().ucx()); !why.empty()) GTEST_SKIP() << why;
    start();
  }
  void TearDown() override {
    // Ends all ranks at the same time, as the processes of a service are ended.
    std::vector<std::jthread> enders;
    for (auto& service : services_) enders.emplace_back([&service] { service.reset(); });
    enders.clear();
    log::set_level(log::Level::info);
  }

  // Returns how long a rank that ends still serves its requests.
  virtual double drain_s() const { return 0; }
  virtual void change(ServerSettings&) const {}
  // Returns how long requests wait for lost ranks.
  virtual double lost_rank_wait_s() const { return to_seconds(kPatience); }
  std::unique_ptr<Service> make(int rank) const {
    ServerSettings settings = settings_of(kBundled, num_ranks());
    const UcxOptions ucx = GetParam().ucx();
    settings.parallel.ucx_tls = ucx.tls;
    settings.parallel.ucx_net_devices = ucx.devices;
    settings.http.shutdown_timeout_s = drain_s();
    settings.parallel.lost_rank_wait_s = lost_rank_wait_s();
    settings.model.context_length = 2048;
    settings.scheduler.overlap_schedule = GetParam().overlap_schedule;
    change(settings);
    const ClusterLaunch launch{
        .launch = {.num_ranks = num_ranks(), .rank = rank, .init_addr = {"127.0.0.1", port_}},
        .control = {.init_addr = {"127.0.0.1", port_},
                    .token = "a token of sixteen",
                    .tolerate_ranks = settings.parallel.tolerate_ranks}};
    return std::make_unique<Service>(
        Engine::Options{.settings = settings, .cluster = launch, .stall_timeout = kPatience});
  }
  void start() {
    for (int rank = 0; rank < num_ranks(); ++rank) {
      services_.push_back(make(rank));
      ASSERT_TRUE(services_.back()->works());
    }
  }
  static int num_ranks() { return GetParam().num_ranks; }
  Service& service(int rank) { return *services_[static_cast<size_t>(rank)]; }
  bool all_met() {
    return service(0).read_until([&] {
      return std::ranges::none_of(services_,
                                  [](auto& s) { return s->engine().stats().lost.has_value(); });
    });
  }
  // Expects that each answer, with requests spread over the ranks, equals that of one rank alone.
  void expect_the_same_answers() {
    constexpr int kRequests = 8;
    const std::vector<Answer> want = alone(settings_of(kBundled, 1), traffic(kRequests));
    std::vector<RequestId> ids;
    for (RequestInput& input : traffic(kRequests)) {
      const auto id = service(static_cast<int>(ids.size()) % num_ranks()).submit(std::move(input));
      ASSERT_TRUE(id.has_value()) << id.error().message;
      ids.push_back(*id);
    }
    for (auto& one : services_) ASSERT_TRUE(one->read_all());
    for (size_t i = 0; i < ids.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const Answer& got = service(static_cast<int>(i) % num_ranks()).answer(ids[i]);
      ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
      EXPECT_EQ(got.summary.rank, static_cast<int>(i) % num_ranks());
      ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
    }
  }
  static void expect_rank_1(const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::lost_rank);
    EXPECT_NE(error.message.find("rank 1"), std::string::npos) << error.message;
  }

  uint16_t port_ = TestProxy::free_port();
  std::vector<std::unique_ptr<Service>> services_;
};

}  // namespace hocket::testing
