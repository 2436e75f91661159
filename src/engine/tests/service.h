// A running engine of several ranks, and traffic for it. Tests only.
#pragma once

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "engine/tests/forms.h"

namespace hocket::testing {

inline constexpr auto kPatience = std::chrono::seconds(60);

// By this clock drafts cost little: a step takes as long as it asks for the time, not as it has
// rows.
class CallClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(ns_ += 1'000'000)); }

 private:
  mutable std::atomic<int64_t> ns_{0};
};

inline ServerSettings settings_of(const Form& form, int num_ranks) {
  ServerSettings settings = base_settings(form);
  settings.parallel.ep_size = num_ranks;
  settings.compute.num_threads = 1;
  settings.scheduler.chunked_prefill_size = 64;
  return settings;
}

// Makes prompts with common beginnings, long and short answers, and every kind of sampling.
inline std::vector<RequestInput> traffic(int count) {
  std::mt19937 random(11);
  const auto pick = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<uint32_t>(to - from + 1));
  };
  const std::vector<int> shared[] = {{}, random_tokens(1, 70), random_tokens(2, 40)};
  std::vector<RequestInput> inputs;
  for (int i = 0; i < count; ++i) {
    std::vector<int> prompt = shared[pick(0, 2)];
    for (const int token : random_tokens(100 + i, pick(1, i % 3 == 0 ? 110 : 20)))
      prompt.push_back(token);
    RequestInput input = greedy_input(prompt, pick(1, 40));
    SamplingParams& p = input.sampling;
    p.ignore_eos = pick(0, 1) == 0;
    if (pick(0, 1) == 0) p.temperature = 0.9, p.seed = random();
    if (pick(0, 2) == 0) p.frequency_penalty = 0.5;
    p.num_top_logprobs = pick(-1, 3);
    if (pick(0, 3) == 0) p.prompt_logprobs_from = pick(0, 2);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// A running engine and the answers that its requests have so far.
class Service {
 public:
  explicit Service(const ServerSettings& settings, Duration stall_timeout = kPatience)
      : Service(Engine::Options{.settings = settings, .stall_timeout = stall_timeout}) {}
  // before_start is called with the engine before its threads start.
  explicit Service(
      Engine::Options options, const std::function<void(Engine&)>& before_start = [](Engine&) {}) {
    auto made = Engine::create(std::move(options));
    if (!made) {
      ADD_FAILURE() << describe(made.error());
      return;
    }
    engine_ = *std::move(made);
    before_start(*engine_);
    engine_->start(outbox_);
  }
  ~Service() {
    if (engine_) engine_->stop();
  }
  bool works() const { return engine_ != nullptr; }
  Engine& engine() { return *engine_; }

  Result<RequestId> submit(RequestInput input) {
    input.id = Engine::next_request_id();
    const RequestId id = input.id;
    HOCKET_TRY_VOID(engine_->submit(std::move(input)));
    ids_.push_back(id);
    return id;
  }
  Answer& answer(RequestId id) { return answers_[id]; }
  void read() { collect(outbox_, answers_); }
  // Reads outputs until `so` returns true; false if that takes longer than kPatience.
  bool read_until(const std::function<bool()>& so) {
    const TimePoint deadline = RealClock().now() + kPatience;
    for (read(); !so(); read()) {
      if (RealClock().now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  bool read_all() {
    return read_until(
        [&] { return std::ranges::all_of(ids_, [&](RequestId id) { return answers_[id].done; }); });
  }

 private:
  Outbox outbox_{65536};
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Answer> answers_;
  std::vector<RequestId> ids_;
};

inline RequestInput long_one(int seed) {
  RequestInput input = greedy_input(random_tokens(seed, 20), 200);
  input.sampling.ignore_eos = true;
  return input;
}

}  // namespace hocket::testing
