// Tests the gates of several ranks in an engine.
#include "base/log.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

// One rank answers while the other one computes a prompt in fifty chunks.
TEST(GatesOfRanks, LearnNothingBesideAPromptOfAnotherRank) {
  log::set_level(log::Level::error);
  ServerSettings settings = settings_of(kBundled, 2);
  settings.parallel.dp_routing = "round-robin";
  settings.memory.page_size = 4;
  settings.scheduler.chunked_prefill_size = 4;
  settings.speculation = {.algorithm = "NGRAM"};
  std::vector<RequestInput> inputs = {greedy_input(random_tokens(1, 3), 20),
                                      greedy_input(random_tokens(2, 200), 1)};
  std::map<RequestId, Answer> answers;
  Outbox outbox(4096);
  const auto engine = make_engine(settings);
  ASSERT_NE(engine, nullptr);
  for (RequestInput& input : inputs) {
    input.id = Engine::next_request_id();
    input.sampling.ignore_eos = true;
    ASSERT_TRUE(engine->submit(input).has_value());
  }
  engine->start(outbox);
  const TimePoint deadline = RealClock().now() + kPatience;
  while (!answers[inputs[0].id].done || !answers[inputs[1].id].done) {
    ASSERT_LT(RealClock().now(), deadline);
    collect(outbox, answers);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  engine->stop();
  const SpeculationView view = engine->speculation();
  ASSERT_EQ(view.ranks.size(), 2U);
  EXPECT_GE(view.ranks[0].gate.totals.num_steps, 19U);
  EXPECT_TRUE(view.ranks[0].gate.buckets.empty());
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
