// Compares overlapped runs with plain ones: same tokens, same ends, same tree.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/simulated_answers_testing.h"

namespace hocket {
namespace {

constexpr int kSmallVocab = 12;

struct Arrival {
  int step = 0;
  RequestInput input;
};

// The pool has room for all requests, so that nothing is evicted and the trees can be compared.
SchedulerOptions options_of(std::mt19937_64& random) {
  SchedulerOptions options;
  options.num_pages = 2000;
  options.page_tokens = 1 << (random() % 4);
  options.chunk_tokens = random() % 3 == 0 ? -1 : options.page_tokens * (1 + random() % 4);
  options.prefill_policy = random() % 2 == 0 ? PrefillPolicy::prefill_first : PrefillPolicy::mixed;
  options.max_chunked_requests = 1 + static_cast<int>(random() % 3);
  options.max_running_requests = 1 + static_cast<int>(random() % 8);
  options.vocab_size = kSmallVocab;
  options.eos_ids = {kEos};
  return options;
}

std::vector<Arrival> traffic_of(std::mt19937_64& random) {
  std::vector<Arrival> traffic;
  for (uint64_t id = 1; id <= 20; ++id) {
    RequestInput input;
    input.id = RequestId{id};
    const auto length = 1 + random() % 24;
    const auto shared = random() % (length + 1);
    for (uint64_t i = 0; i < length; ++i)
      input.prompt.push_back(
          TokenId{static_cast<int>(i < shared ? i % 5 : random() % kSmallVocab)});
    input.sampling.max_new_tokens = 1 + static_cast<int>(random() % 16);
    input.sampling.ignore_eos = random() % 4 == 0;
    traffic.push_back({static_cast<int>(random() % 60), std::move(input)});
  }
  return traffic;
}

struct Outcome {
  std::map<uint64_t, std::vector<TokenId>> tokens;
  std::map<uint64_t, FinishReason> finish;
  std::map<uint64_t, int> cached;  // by request: how much of its text the tree holds at the end
  int num_cached_pages = 0;
  int num_pending_samples = 0;  // rows for tokens that were not known yet
  int num_too_many = 0;         // rows that were dropped

  bool same(const Outcome& other) const {
    return tokens == other.tokens && finish == other.finish && cached == other.cached &&
           num_cached_pages == other.num_cached_pages;
  }
};

// Returns how many of `tokens` the tree holds, by sending them as a prompt.
int cached_of(FakeEngine& engine, const std::vector<TokenId>& tokens) {
  RequestInput probe{.id = RequestId{1000}, .prompt = tokens};
  probe.sampling.max_new_tokens = 1;
  EXPECT_TRUE(engine.scheduler().add(std::move(probe)).has_value());
  while (engine.step()) {
  }
  return engine.scheduler().take_finished().front()->cached_len;
}

Outcome play(const SchedulerOptions& options, const std::vector<Arrival>& traffic,
             bool overlapped) {
  Outcome outcome;
  const auto sample = [](const Request&, auto history) {
    return SampledToken{next_token(history, 0, kSmallVocab), false};
  };
  FakeEngine engine(options, sample, overlapped);
  int num_rows = 0;
  for (int step = 0, idle = 0; idle < 2 || step < 62; ++step) {
    for (const Arrival& arrival : traffic) {
      if (arrival.step != step) continue;
      EXPECT_TRUE(engine.scheduler().add(arrival.input).has_value());
    }
    const bool busy = engine.step([&](const Batch& batch) {
      num_rows += batch.num_rows;
      for (const Slice& slice : batch.slices)
        outcome.num_pending_samples += slice.pending_sample >= 0;
    });
    idle = busy ? 0 : idle + 1;
    for (const auto& request : engine.scheduler().take_finished()) {
      outcome.tokens[value(request->id)] = request->tokens;
      outcome.finish[value(request->id)] = request->finish;
      num_rows -= static_cast<int>(request->tokens.size()) - 1 - request->cached_len;
    }
  }
  EXPECT_EQ(engine.problem(), "");
  outcome.num_too_many = num_rows;
  outcome.num_cached_pages = engine.scheduler().stats().num_cached_pages;
  for (const auto& [id, tokens] : outcome.tokens) outcome.cached[id] = cached_of(engine, tokens);
  return outcome;
}

TEST(Overlap, SameTokensAndSameTree) {
  int num_pending_samples = 0, num_too_many = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const SchedulerOptions options = options_of(random);
    const std::vector<Arrival> traffic = traffic_of(random);
    const Outcome plain = play(options, traffic, false);
    const Outcome overlapped = play(options, traffic, true);
    ASSERT_EQ(plain.tokens.size(), traffic.size());
    ASSERT_TRUE(overlapped.same(plain)) << "seed " << seed;
    ASSERT_EQ(plain.num_too_many, 0);
    ASSERT_EQ(plain.num_pending_samples, 0);
    num_pending_samples += overlapped.num_pending_samples;
    num_too_many += overlapped.num_too_many;
  }
  std::printf("%d rows for tokens to come, %d rows too many\n", num_pending_samples, num_too_many);
  EXPECT_GT(num_pending_samples, 10'000);
  EXPECT_GT(num_too_many, 1'000);
}

}  // namespace
}  // namespace hocket
