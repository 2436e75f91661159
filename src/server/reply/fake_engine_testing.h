// An engine without a model, for tests of the server's rooms: it answers what the test chooses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace hocket {

inline constexpr TokenId kEndToken{2041};  // <|im_end|> of the bundled model

// A value that the test changes while threads of the server read it.
template <class T>
class Synchronized {
 public:
  Synchronized() = default;
  Synchronized(T value) : value_(std::move(value)) {}
  T read() const {
    std::lock_guard lock(mutex_);
    return value_;
  }
  void write(T value) {
    std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

// Generates what `script` returns for a request, one token per tick, then the end token.
class FakeServerEngine final : public Engine {
 public:
  using Script = std::function<std::vector<TokenId>(const RequestInput&)>;

  FakeServerEngine() {
    info_.served_model_name = "tiny";
    info_.model_path = "models/tiny";
    info_.model.vocab_size = 2048;
    info_.model.eos_ids = {kEndToken};
    info_.context_length = 4096;
    info_.max_total_tokens = 65536;
    info_.max_running_requests = 256;
    info_.generation_defaults.temperature = 0.3;
    info_.generation_defaults.top_p = 0.9;
    info_.changes = {{"--page-size", "16", "32", "pages are multiples of 32"}};
    info_.notes = {"--mla-form auto: the prefix cache keeps no answers"};
  }
  ~FakeServerEngine() override { stop(); }

  void start(Outbox& outbox) override {
    outbox_ = &outbox;
    thread_ = std::thread([this] { run(); });
  }
  void stop() override {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    std::lock_guard lock(mutex_);
    for (Running& r : running_)
      finish(r, FinishReason::abort, TokenId{-1}, error(ErrorCode::shutting_down, "shutting down"));
    running_.clear();
  }
  Result<void> submit(RequestInput input) override {
    if (entering) entering();
    std::lock_guard lock(mutex_);
    if (draining_ && !input.taken_over)
      return fail(ErrorCode::shutting_down, "the server is shutting down");
    if (refusal) return fail(*refusal);
    Running r;
    r.script = script(input);
    for (const TokenId token : input.answer) {
      RequestOutput known{.id = input.id, .token = token, .known = true};
      EXPECT_TRUE(outbox_->push(std::move(known)));
    }
    r.done = input.answer.size();
    seen.push_back(input);
    r.input = std::move(input);
    running_.push_back(std::move(r));
    return {};
  }
  size_t num_seen() const {
    std::lock_guard lock(mutex_);
    return seen.size();
  }
  void abort(RequestId id) override {
    std::lock_guard lock(mutex_);
    for (Running& r : running_)
      if (r.input.id == id) r.aborted = true;
  }
  void finish_whole(RequestId id) override {
    if (finishing) finishing();
    abort(id);
  }
  void abort_all() override {
    std::lock_guard lock(mutex_);
    for (Running& r : running_) r.aborted = true;
  }
  bool flush_cache() override { return num_running() == 0; }
  Result<SessionResult> change_session(const SessionRequest& ask) override {
    if (changing) changing();
    std::lock_guard lock(mutex_);
    session_requests.push_back(ask);
    if (session_len == 0) return fail(ErrorCode::not_found, "no such session is known here");
    return SessionResult{.tokens = session_len, .bytes = session_len * 4};
  }
  void stop_accepting() override { draining_ = true; }
  EngineStats stats() const override {
    EngineStats s;
    s.lost = lost.read();
    s.scheduler.num_running = num_running();
    s.scheduler.num_used_tokens = 7;
    return s;
  }
  const EngineInfo& info() const override { return info_; }
  EngineParts parts() override {
    return {.kv_events = events ? &*events : nullptr,
            .profiler = &profiler_,
            .recent_steps = &recent_,
            .cluster = plane};
  }
  OverlapView overlap() const override { return overlapped.read(); }
  SpeculationView speculation() const override { return speculated.read(); }
  std::vector<RankLoad> loads() const override { return rank_loads.read(); }
  std::vector<RequestStatus> request_snapshots() const override { return {}; }
  std::optional<Error> failure() const override { return failed.read(); }
  bool step(Outbox&) override { return false; }

  int num_running() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(running_.size());
  }
  RequestInput last_seen() const {
    std::lock_guard lock(mutex_);
    return seen.back();
  }

  Script script = [](const RequestInput& r) { return r.prompt; };  // repeats the prompt
  std::function<void()> entering;   // called first by submit(); may wait, or throw
  std::function<void()> finishing;  // called first by finish_whole()
  std::function<void()> changing;   // called first by change_session(); may wait
  std::optional<Error> refusal;
  std::optional<Error> late_error;  // replaces the third token
  std::atomic<int> pace_us = 20;
  std::atomic<int> tokens_a_step = 1;      // more as if drafts were accepted
  std::atomic<int> recomputed_tokens = 0;  // in each summary
  Synchronized<PerTier<int>> fetched;      // in each summary, of the 5 tokens that are cached
  Synchronized<DraftCounts> drafts;        // in each summary
  std::vector<RequestInput> seen;
  std::vector<SessionRequest> session_requests;
  std::atomic<int64_t> session_len = 96;  // tokens of every session; 0: none is known
  std::atomic<int> num_aborted = 0;
  Profiler profiler_{{}};
  RecentSteps recent_{{}};
  EngineInfo info_;
  std::optional<KvEventChannel> events;
  ControlPlane* plane = nullptr;  // set if it is one of several ranks
  Synchronized<std::vector<RankLoad>> rank_loads{{RankLoad{}}};
  Synchronized<OverlapView> overlapped;
  Synchronized<SpeculationView> speculated;
  Synchronized<std::optional<Error>> lost, failed;

 private:
  struct Running {
    RequestInput input;
    std::vector<TokenId> script;
    size_t done = 0;
    bool aborted = false;
    TimePoint started{};
  };

  void run() {
    while (!stopping_) {
      std::this_thread::sleep_for(std::chrono::microseconds(pace_us));
      std::lock_guard lock(mutex_);
      for (auto r = running_.begin(); r != running_.end();) {
        bool over = false;
        for (int i = 0; i < tokens_a_step && !over; ++i) over = tick(*r);
        r = over ? running_.erase(r) : std::next(r);
      }
    }
  }

  static PositionLogprobs logprobs_of(TokenId id, int num_top) {
    PositionLogprobs p{-0.25f, {}};
    for (int i = 0; i < num_top; ++i)
      p.top.push_back({TokenId{(value(id) + i) % 2048}, -0.25f - static_cast<float>(i)});
    return p;
  }

  bool tick(Running& r) {
    if (r.aborted) {
      ++num_aborted;
      finish(r, FinishReason::abort, TokenId{-1}, Error{});
      return true;
    }
    if (late_error && r.done == 2) {
      finish(r, FinishReason::error, TokenId{-1}, *late_error);
      return true;
    }
    const SamplingParams& sampling = r.input.sampling;
    RequestOutput out;
    out.id = r.input.id;
    out.token = r.done < r.script.size() ? r.script[r.done] : kEndToken;
    if (sampling.num_top_logprobs >= 0)
      out.logprobs =
          std::make_unique<PositionLogprobs>(logprobs_of(out.token, sampling.num_top_logprobs));
    if (r.done == 0) {
      r.started = RealClock().now();
      if (sampling.prompt_logprobs_from >= 0) {
        out.prompt_logprobs = std::make_unique<std::vector<PositionLogprobs>>();
        for (size_t i = static_cast<size_t>(sampling.prompt_logprobs_from);
             i < r.input.prompt.size(); ++i)
          out.prompt_logprobs->push_back(logprobs_of(r.input.prompt[i], sampling.num_top_logprobs));
      }
    }
    ++r.done;
    const bool is_stop = (out.token == kEndToken && !sampling.ignore_eos) ||
                         std::ranges::count(sampling.stop_ids, out.token) > 0;
    if (is_stop || r.done == static_cast<size_t>(sampling.max_new_tokens)) {
      out.summary = summary_of(r, is_stop ? FinishReason::stop : FinishReason::length);
      if (is_stop) out.summary->matched_stop = out.token;
    }
    const bool over = out.summary != nullptr;
    EXPECT_TRUE(outbox_->push(std::move(out)));
    return over;
  }

  std::unique_ptr<RequestSummary> summary_of(const Running& r, FinishReason reason) const {
    auto s = std::make_unique<RequestSummary>();
    s->rank = plane == nullptr ? 0 : plane->self().rank;
    s->finish = reason;
    s->prompt_tokens = static_cast<int>(r.input.prompt.size());
    s->cached_tokens = std::min(5, s->prompt_tokens);
    s->fetched_tokens = fetched.read();
    s->recomputed_tokens = recomputed_tokens;
    s->generated_tokens = static_cast<int>(r.done);
    s->drafts = drafts.read();
    s->times = {.arrived = r.input.arrived,
                .queued = r.input.arrived,
                .first_scheduled = r.started,
                .prefill_done = r.started,
                .finished = RealClock().now()};
    return s;
  }
  void finish(const Running& r, FinishReason reason, TokenId token, Error e) {
    RequestOutput out;
    out.id = r.input.id;
    out.token = token;
    out.summary = summary_of(r, reason);
    out.summary->error = std::move(e);
    EXPECT_TRUE(outbox_->push(std::move(out)));
  }

  mutable std::mutex mutex_;
  std::list<Running> running_;
  std::atomic<bool> stopping_ = false, draining_ = false;
  Outbox* outbox_ = nullptr;
  std::thread thread_;
};

}  // namespace hocket
