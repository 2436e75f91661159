#include "bench/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mix.h"
#include "base/quantile.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {
namespace {

constexpr int kPromptTokens = 2000, kPageTokens = 32;
constexpr int kTreeTokens = 1'000'000, kTreePrompts = kTreeTokens / kPromptTokens;
constexpr int kDecodeTokens = 1024;  // tokens that each running request may generate
// Every other waiting prompt begins with half a prompt of the tree.
constexpr int kSharedTokens = kPromptTokens / 2;

TokenId token_of(uint64_t sequence, int position) {
  const uint64_t bits = mix64(sequence * kMixStep + static_cast<uint64_t>(position));
  return TokenId{static_cast<int32_t>(bits >> 33)};
}

struct Measured {
  std::string name;
  std::vector<double> us;
  double goal_us = 0;  // 0: none
};

// A scheduler with a filled prefix tree, running requests that only decode, and waiting requests.
class Scene {
 public:
  struct Size {
    int num_running = 0, num_waiting = 0;
    int num_free_seats = 0;  // places for waiting requests among the running ones
    SchedulePolicy policy = SchedulePolicy::fcfs;
  };

  explicit Scene(const Size& size) : scheduler_(options_of(size)) {
    for (int i = 0; i < kTreePrompts; ++i) {
      add(prompt(static_cast<uint64_t>(i), kPromptTokens), 1);
      run_until_idle();
    }
    next_sequence_ = kTreePrompts;
    // Lengths differ, so that not all requests reach the end of a page in the same step.
    for (int i = 0; i < size.num_running; ++i) {
      add(prompt(next_sequence_++, kPromptTokens + i % kPageTokens), kDecodeTokens);
      while (scheduler_.stats().num_waiting > 0) step();
    }
    for (int chunks = 0; chunks < 3; ++chunks) step();  // prefill of the last request
    for (int i = 0; i < size.num_waiting; ++i) add_waiting();
  }

  // Adds a waiting request that ends with its prefill; every other one has a prefix in the tree.
  void add_waiting() {
    const uint64_t sequence = next_sequence_++;
    std::vector<TokenId> tokens = prompt(sequence, kPromptTokens);
    if (sequence % 2 == 0)
      for (int i = 0; i < kSharedTokens; ++i) tokens[i] = token_of(sequence % kTreePrompts, i);
    add(std::move(tokens), 1);
  }

  // Microseconds of schedule() and commit() together, with the step's mode and rows.
  struct Step {
    double us = 0;
    ForwardMode mode = ForwardMode::idle;
    int num_rows = 0;
  };
  Step step() {
    now_ += std::chrono::milliseconds(10);
    const TimePoint begin = RealClock().now();
    const Batch& batch = scheduler_.schedule(now_);
    Duration took = RealClock().now() - begin;
    const Step made{0, batch.mode, batch.num_rows};
    if (batch.empty()) return made;
    sampled_.clear();
    for (const Slice& slice : batch.slices)
      if (slice.is_sampled) sampled_.push_back({.token = token_of(1, slice.begin)});
    const TimePoint again = RealClock().now();
    scheduler_.commit(batch, sampled_, now_);
    took += RealClock().now() - again;
    scheduler_.take_finished();
    return {to_us(took), made.mode, made.num_rows};
  }

  SchedulerStats stats() const { return scheduler_.stats(); }

 private:
  static SchedulerOptions options_of(const Size& size) {
    SchedulerOptions o;
    o.page_tokens = kPageTokens;
    const int64_t running = int64_t{size.num_running} * (kPromptTokens + 32 + kDecodeTokens);
    o.num_pages = static_cast<int>((2 * int64_t{kTreeTokens} + running) / kPageTokens) + 4096;
    o.max_running_requests = std::max(1, size.num_running + size.num_free_seats);
    o.max_queued_requests = size.num_waiting + 16;
    o.policy = size.policy;
    return o;
  }

  static std::vector<TokenId> prompt(uint64_t sequence, int len) {
    std::vector<TokenId> tokens(static_cast<size_t>(len));
    for (int i = 0; i < len; ++i) tokens[i] = token_of(sequence, i);
    return tokens;
  }

  void add(std::vector<TokenId> tokens, int max_new_tokens) {
    RequestInput input;
    input.id = RequestId{++last_id_};
    input.prompt = std::move(tokens);
    input.sampling.max_new_tokens = max_new_tokens;
    input.sampling.ignore_eos = true;
    input.arrived = now_;
    HOCKET_CHECK(scheduler_.add(std::move(input)).has_value());
  }
  void run_until_idle() {
    while (!scheduler_.idle()) step();
  }

  Scheduler scheduler_;
  TimePoint now_{};
  uint64_t last_id_ = 0, next_sequence_ = 0;
  std::vector<SampledToken> sampled_;
};

// Times steps in which all running requests make one token, and no waiting request can join.
Measured decode(int num_running, int num_waiting, int num_steps) {
  Scene scene({.num_running = num_running, .num_waiting = num_waiting});
  Measured m{.name = fmt::format("decode, {} running, {} waiting", num_running, num_waiting)};
  if (num_running == 256) m.goal_us = 15;
  if (num_running == 1024) m.goal_us = 60;
  for (int i = 0; i < num_steps; ++i) {
    const Scene::Step step = scene.step();
    HOCKET_CHECK(step.mode == ForwardMode::decode && step.num_rows == num_running);
    if (i >= 16) m.us.push_back(step.us);  // the first ones warm up
  }
  return m;
}

// Times prefill passes of one prompt and what fits beside it. The queue is kept at its length.
Measured prefill(SchedulePolicy policy, std::string_view policy_name, int num_waiting,
                 int num_steps) {
  Scene scene(
      {.num_running = 256, .num_waiting = num_waiting, .num_free_seats = 8, .policy = policy});
  Measured m{.name = fmt::format("prefill, 256 running, {} waiting, {}", num_waiting, policy_name)};
  if (num_waiting == 10'000) m.goal_us = 300;
  for (int i = 0; i < num_steps; ++i) {
    const Scene::Step step = scene.step();
    HOCKET_CHECK(step.mode == ForwardMode::extend);
    if (i >= 8) m.us.push_back(step.us);
    while (scene.stats().num_waiting < num_waiting) scene.add_waiting();
  }
  return m;
}

// Times the match of a prompt that a tree of 1,000,000 tokens holds whole.
Measured radix_match(int num_steps) {
  constexpr int kPage = 16, kLen = 32'768;
  PageAllocator pages(kTreeTokens / kPage + 2 * kLen, kPage);
  RadixCache cache(pages, {});
  std::vector<std::vector<TokenId>> prompts;
  for (uint64_t sequence = 0; int64_t(sequence) * kLen < kTreeTokens; ++sequence) {
    std::vector<TokenId> tokens(kLen);
    // Conversations: each shares its first quarter with three others.
    for (int i = 0; i < kLen; ++i)
      tokens[i] = token_of(i < kLen / 4 ? 1000 + sequence / 4 : sequence, i);
    std::vector<PageId> own(kLen / kPage);
    HOCKET_CHECK(pages.take(own));
    cache.insert({}, tokens, own);
    prompts.push_back(std::move(tokens));
  }
  Measured m{.name = "radix match, 32768 tokens at page 16", .goal_us = 250};
  for (int i = 0; i < num_steps; ++i) {
    const std::vector<TokenId>& tokens = prompts[static_cast<size_t>(i) % prompts.size()];
    const TimePoint begin = RealClock().now();
    const PrefixMatch match = cache.match({}, tokens);
    const double us = to_us(RealClock().now() - begin);
    HOCKET_CHECK(match.len(kPage) == kLen);
    if (i >= 8) m.us.push_back(us);
  }
  return m;
}

void print(const Measured& m, bool json) {
  const double p50 = quantile(m.us, 0.5), p99 = quantile(m.us, 0.99);
  if (json) {
    nlohmann::ordered_json line = {{"name", m.name}, {"us_p50", p50}, {"us_p99", p99}};
    line["goal_us"] = m.goal_us > 0 ? nlohmann::ordered_json(m.goal_us) : nullptr;
    line["ratio"] = m.goal_us > 0 ? nlohmann::ordered_json(p50 / m.goal_us) : nullptr;
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:<45} p50 {:>8.2f} us | p99 {:>8.2f} us{}\n", m.name, p50, p99,
               m.goal_us > 0
                   ? fmt::format(" | {:.2f} of the goal of {:.0f} us", p50 / m.goal_us, m.goal_us)
                   : "");
  }
  std::fflush(stdout);
}

}  // namespace

int bench_scheduler(BenchSchedulerOptions options) {
  log::set_level(log::Level::error);
  const int num_steps = options.quick ? 100 : 500;
  for (const int running : {1, 64, 256, 1024})
    for (const int waiting : {0, 1000, 10'000})
      if (!options.quick || running >= 256)
        print(decode(running, waiting, num_steps), options.json);
  for (const auto& [policy, name] :
       {std::pair(SchedulePolicy::fcfs, "fcfs"), std::pair(SchedulePolicy::lpm, "lpm")})
    for (const int waiting : {100, 1000, 10'000})
      if (!options.quick || waiting == 10'000)
        print(prefill(policy, name, waiting, num_steps / 2), options.json);
  print(radix_match(num_steps), options.json);
  return 0;
}

}  // namespace hocket
