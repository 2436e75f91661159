// The interface through which the server reaches the engine. Tests implement it with a fake model.
// Thread: any, for every function. Only flush_cache blocks.
#pragma once

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/messages.h"

namespace hocket {

class Generator {
 public:
  virtual ~Generator() = default;

  // Outputs go to `outbox` until stop() returns.
  virtual void start(Outbox& outbox) = 0;
  // Ends the generator; requests that wait or run are answered with shutting_down.
  virtual void stop() = 0;
  // Returns errors that are known at once, as Engine::submit does; other refusals arrive as an
  // output.
  virtual Result<void> submit(RequestInput input) = 0;
  virtual void abort(RequestId id) = 0;
  virtual void abort_all() = 0;
  // Ends a request because a stop string was found: its answer is complete.
  virtual void complete(RequestId id) = 0;
  virtual bool flush_cache() = 0;
  virtual void stop_accepting() = 0;
  virtual EngineStats stats() const = 0;
  virtual const EngineInfo& info() const = 0;
  // Like Engine::kv_events.
  virtual KvEventChannel* kv_events() = 0;
  // Like Engine::expert_stats, profiler, overlap, loads, cluster, failure.
  virtual ExpertStats* expert_stats() { return nullptr; }
  virtual Profiler* profiler() { return nullptr; }
  virtual OverlapView overlap() const { return {}; }
  // Like Engine::recent_steps, but null if steps are not recorded; and like
  // Engine::request_snapshots.
  virtual const RecentSteps* recent_steps() const { return nullptr; }
  virtual SpeculationView speculation() const { return {}; }
  virtual std::vector<RequestAt> request_snapshots() const { return {}; }
  virtual std::vector<RankLoad> loads() const { return {RankLoad{}}; }
  virtual ControlPlane* cluster() { return nullptr; }
  virtual std::optional<Error> failure() const { return std::nullopt; }
};

// The generator that passes each call on to the engine.
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
  Profiler* profiler() override {  // with overlap_schedule steps are not recorded
    return engine_.info().overlap_schedule ? nullptr : &engine_.profiler();
  }
  OverlapView overlap() const override { return engine_.overlap(); }
  const RecentSteps* recent_steps() const override {
    return engine_.info().overlap_schedule ? nullptr : &engine_.recent_steps();
  }
  SpeculationView speculation() const override { return engine_.speculation(); }
  std::vector<RequestAt> request_snapshots() const override { return engine_.request_snapshots(); }
  std::vector<RankLoad> loads() const override { return engine_.loads(); }
  ControlPlane* cluster() override { return engine_.cluster(); }
  std::optional<Error> failure() const override { return engine_.failure(); }

 private:
  Engine& engine_;
};

}  // namespace hocket
