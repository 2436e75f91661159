// Tests that the agreement binds although schedulers change meanwhile: requests come, end by a
// token, are aborted, cut in chunks, or retracted between the vote and the step. A batch beyond the
// agreement would stop the process; answers must equal those of one rank alone.
#include <functional>
#include <random>
#include <tuple>

#include "base/log.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

struct Strain {
  const char* name;
  void (*change)(ServerSettings&);
  bool retracts = false;
};

void crowd(ServerSettings& s) {
  s.memory.max_total_tokens = 256;
  s.memory.page_size = 16;
  s.scheduler.schedule_conservativeness = 0.01;
}

// Every second request is small at first and becomes long.
std::vector<RequestInput> growing_traffic(int count) {
  std::vector<RequestInput> inputs = traffic(count);
  for (int i = 0; i < count; i += 2) {
    inputs[i] = greedy_input(random_tokens(500 + i, 10), 100);
    inputs[i].sampling.ignore_eos = true;
  }
  return inputs;
}

// A strain, and --overlap-schedule.
class LockstepOfRanks : public ::testing::TestWithParam<std::tuple<Strain, const char*>> {};

TEST_P(LockstepOfRanks, NeverBreaksAWord) {
  const auto& [strain, overlap_schedule] = GetParam();
  log::set_level(log::Level::error);
  constexpr int kRequests = 24;
  const std::vector<Answer> want = alone(settings_of(kBundled, 1), growing_traffic(kRequests));
  ServerSettings settings = settings_of(kBundled, 2);
  settings.parallel.dp_routing = "round-robin";
  settings.scheduler.overlap_schedule = overlap_schedule;
  strain.change(settings);
  Service service(settings);
  ASSERT_TRUE(service.works());
  std::mt19937 random(5);
  std::vector<RequestId> ids;
  for (RequestInput& input : growing_traffic(kRequests)) {
    ids.push_back(*service.submit(std::move(input)));
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
    if (random() % 6 == 0) service.engine().abort(ids[random() % ids.size()]);
  }
  ASSERT_TRUE(service.read_all());
  int num_whole = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const Answer& got = service.answer(ids[i]);
    if (got.summary.finish == FinishReason::abort) continue;
    ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
    ++num_whole;
  }
  EXPECT_GT(num_whole, kRequests / 2);
  uint64_t num_retracted = 0;
  for (const RankStats& rank : service.engine().stats().ranks) {
    num_retracted += rank.scheduler.num_retracted_total;
    EXPECT_EQ(rank.scheduler.num_private_pages, 0);
  }
  EXPECT_EQ(num_retracted > 0, strain.retracts);
  log::set_level(log::Level::info);
}

const Strain kStrains[] = {{"retracted", crowd, true},
                           {"mixed",
                            [](auto& s) {
                              crowd(s);
                              s.scheduler.prefill_policy = "mixed";
                              s.scheduler.chunked_prefill_size = 32;
                            },
                            true},
                           {"latency",
                            [](auto& s) {
                              s.scheduler.prefill_policy = "latency";
                              s.scheduler.itl_slo_ms = 2;
                              s.scheduler.max_chunked_requests = 3;
                            }},
                           {"few_places",
                            [](auto& s) {
                              s.memory.max_running_requests = 2;
                              s.parallel.ep_link_latency_us = 300;
                            }},
                           {"delayed", [](auto& s) {
                              s.parallel.enable_prefill_delayer = true;
                              s.parallel.prefill_delayer_max_passes = 5;
                              s.memory.max_running_requests = 4;
                            }}};
INSTANTIATE_TEST_SUITE_P(Strains, LockstepOfRanks,
                         ::testing::Combine(::testing::ValuesIn(kStrains),
                                            ::testing::Values("off", "on")),
                         [](const auto& param) {
                           return fmt::format("{}_{}", std::get<0>(param.param).name,
                                              std::get<1>(param.param));
                         });

}  // namespace
}  // namespace hocket
