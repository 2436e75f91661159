// What the protocol half asks of whoever makes the tokens: the engine, or the tests' pretend model.
// Thread: any, for every function; nothing blocks but flush_cache.
#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/messages.h"

namespace hocket {

class Generator {
 public:
  virtual ~Generator() = default;

  // Outputs go to `outbox` from now on, until stop() returns.
  virtual void start(Outbox& outbox) = 0;
  // Ends; what still waits or runs is answered with shutting_down.
  virtual void stop() = 0;
  // Errors at once, as Engine::submit; other refusals arrive as an output.
  virtual Result<void> submit(RequestInput input) = 0;
  virtual void abort(RequestId id) = 0;
  virtual void abort_all() = 0;
  // The answer is whole: a stop string was found.
  virtual void complete(RequestId id) = 0;
  virtual bool flush_cache() = 0;
  virtual void stop_accepting() = 0;
  virtual EngineStats stats() const = 0;
  virtual const EngineInfo& info() const = 0;
  // As Engine::kv_events.
  virtual KvEventChannel* kv_events() = 0;
  // As Engine::expert_stats, profiler, overlap, loads, cluster, failure.
  virtual ExpertStats* expert_stats() { return nullptr; }
  virtual Profiler* profiler() { return nullptr; }
  virtual OverlapView overlap() const { return {}; }
  // As Engine::recent_steps, null where steps are not booked; and Engine::glance.
  virtual const RecentSteps* recent_steps() const { return nullptr; }
  virtual std::vector<RequestAt> glance() const { return {}; }
  virtual std::vector<RankLoad> loads() const { return {RankLoad{}}; }
  virtual ControlPlane* cluster() { return nullptr; }
  virtual std::optional<Error> failure() const { return std::nullopt; }
};

// The engine as it is.
class EngineGenerator final : public Generator {
 public:
  explicit EngineGenerator(Engine& engine) : engine_(engine) {}

  void start(Outbox& outbox) override { engine_.start(outbox); }
  void stop() override { engine_.stop(); }
  Result<void> submit(RequestInput input) override { return engine_.submit(std::move(input)); }
  void abort(RequestId id) override { engine_.abort(id); }
  void abort_all() override { engine_.abort_all(); }
  void complete(RequestId id) override { engine_.complete(id); }
  bool flush_cache() override { return engine_.flush_cache(); }
  void stop_accepting() override { engine_.stop_accepting(); }
  EngineStats stats() const override { return engine_.stats(); }
  const EngineInfo& info() const override { return engine_.info(); }
  KvEventChannel* kv_events() override { return engine_.kv_events(); }
  ExpertStats* expert_stats() override { return engine_.expert_stats(); }
  Profiler* profiler() override {  // steps that overlap their scheduling are not booked
    return engine_.info().overlap_schedule ? nullptr : &engine_.profiler();
  }
  OverlapView overlap() const override { return engine_.overlap(); }
  const RecentSteps* recent_steps() const override {
    return engine_.info().overlap_schedule ? nullptr : &engine_.recent_steps();
  }
  std::vector<RequestAt> glance() const override { return engine_.glance(); }
  std::vector<RankLoad> loads() const override { return engine_.loads(); }
  ControlPlane* cluster() override { return engine_.cluster(); }
  std::optional<Error> failure() const override { return engine_.failure(); }

 private:
  Engine& engine_;
};

}  // namespace hocket
