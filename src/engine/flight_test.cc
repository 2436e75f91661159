// Tests what a step shows of itself while it computes.
#include "engine/flight.h"

#include "base/log.h"
#include "engine/prepare.h"
#include "engine/tests/forms.h"

namespace hocket {
namespace {

using namespace testing;

// A prompt's log-probabilities may take many times longer than the step before, but never stand
// still.
TEST(FlightTest, TheHeartbeatMovesWithEachBlockOfLogits) {
  constexpr int kPageTokens = 16, kRows = 200;
  log::set_level(log::Level::error);
  ServerSettings settings = base_settings(kMoe);
  settings.memory.page_size = kPageTokens;
  auto made = Runner::create({.settings = settings});
  ASSERT_TRUE(made.has_value()) << describe(made.error());
  Runner& runner = **made;
  Request request;
  for (const int token : random_tokens(3, kRows)) request.tokens.push_back(TokenId{token});
  request.prompt_len = kRows;
  request.sampling.temperature = 0;
  request.sampling.prompt_logprobs_from = request.sampling.num_top_logprobs = 0;
  for (int i = 0; i < kRows; i += kPageTokens) request.pages.push_back(PageId{i / kPageTokens});
  Batch batch{.mode = ForwardMode::extend, .num_rows = kRows};
  batch.slices.push_back(
      {.request = &request, .len = kRows, .is_sampled = true, .logprobs_from = 0});

  Flight flight;
  prepare(batch, {.page_tokens = kPageTokens, .prompt_form = runner.info().prompt_form}, flight);
  runner.forward(flight.forward);
  const int block = runner.plan().work.max_logits_rows;
  Sampler sampler(runner.info().model.vocab_size, block);
  const RealClock clock;
  OwnHeartbeat own_heartbeat;
  sample(flight,
         {.runner = runner, .sampler = sampler, .clock = clock, .own_heartbeat = &own_heartbeat});
  const auto num_blocks = (std::ssize(flight.forward.output_rows) + block - 1) / block;
  ASSERT_GT(num_blocks, 1);
  EXPECT_EQ(own_heartbeat.heartbeat().stage, kSampleStage + static_cast<uint32_t>(num_blocks));
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
