// Tests drafts of the models' own modules on several ranks under aborts and short memory.
#include <chrono>
#include <random>
#include <thread>

#include "base/log.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

// Requests end, are aborted and come back between the agreement on the module's passes and these.
TEST(ModuleDraftsOfRanks, SurviveAbortsAndRetractions) {
  log::set_level(log::Level::error);
  constexpr int kRequests = 24;
  const Form form{"deepseek_v3_mtp", kGolden / "deepseek_v3_mtp"};
  std::vector<RequestInput> inputs = traffic(kRequests);
  for (size_t i = 0; i < kRequests; i += 2) {
    inputs[i] = greedy_input(random_tokens(500 + static_cast<int>(i), 10), 100);
    inputs[i].sampling.ignore_eos = true;
  }
  const std::vector<Answer> want = alone(settings_of(form, 1), inputs);
  ServerSettings settings = settings_of(form, 2);
  settings.parallel.dp_routing = "round-robin";
  settings.memory.max_total_tokens = 256;
  settings.memory.page_size = 16;
  settings.scheduler.schedule_conservativeness = 0.01;
  settings.speculation = {.algorithm = "NEXTN", .num_steps = 3};
  // Rounds differ in when requests come; on a very busy machine some need no retraction.
  std::mt19937 random(5);
  uint64_t num_retracted = 0;
  for (int round = 0; round < 10 && num_retracted == 0; ++round) {
    Service service(settings);
    ASSERT_TRUE(service.works());
    std::vector<RequestId> ids;
    for (const RequestInput& input : inputs) {
      ids.push_back(*service.submit(input));
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
      if (random() % 6 == 0) service.engine().abort(ids[random() % ids.size()]);
    }
    ASSERT_TRUE(service.read_all());
    for (size_t i = 0; i < ids.size(); ++i) {
      SCOPED_TRACE(i);
      const Answer& got = service.answer(ids[i]);
      if (got.summary.finish == FinishReason::abort) continue;
      ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
      ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
    }
    for (const RankStats& rank : service.engine().stats().ranks)
      num_retracted += rank.scheduler.num_retracted_total;
  }
  EXPECT_GT(num_retracted, 0U);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
