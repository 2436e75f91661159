// Plays a plan as a pass would, over a real exchange, with given stage times instead of a model:
// for measuring orders, and for proving predictions. Each rank has one. Of ranks alike, over the
// loopback in virtual time, a step takes what predict() says, to the nanosecond.
// Thread: that of the transport. Allocates nothing after construction.
#pragma once

#include <memory>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/forward/half.h"
#include "compute/overlap/plan.h"
#include "compute/overlap/prediction.h"

namespace hocket {

// Who makes time pass, and may watch what is played.
class StageWork {
 public:
  virtual ~StageWork() = default;
  // The cores compute for so long (LoopbackHub::spend).
  virtual void spend(Duration time) = 0;
  // Around every operation; inside `experts` also the parts that are sent and waited for.
  virtual void begin_op(int /*layer*/, Op /*op*/, int /*half*/) {}
  virtual void end_op() {}
};

class StagePlayer {
 public:
  struct Options {
    LayerCounts layers;
    // Of the links: a transfer's busy_us becomes as many bytes, over all peers, heads included (a
    // message is at least its head). Only times count, so with a made-up link a lower rate saves
    // memory.
    double bytes_per_s = 1e9;
    double longest_busy_us = 0;  // of a transfer; what a message may have follows
    int num_halves = kMaxHalves;
    ExchangeWatch* watch = nullptr;  // outlives it
  };
  // The transport outlives it. Errors: out_of_memory.
  static Result<std::unique_ptr<StagePlayer>> create(Transport& transport, const Options& options);

  // One step, without what is beside the layers. Errors: lost_rank.
  Result<void> play(const PlanTimes& plan, StageWork& work);
  AllToAll& exchange() { return *exchange_; }
  uint64_t num_steps() const { return step_; }

 private:
  struct Playing;  // a step under way

  StagePlayer(const Options& options, std::unique_ptr<AllToAll> exchange, size_t most_bytes);
  void run_op(Playing& playing, int layer, Op op, int half);
  void start(Playing& playing, int half, int part, MessageKind kind);
  int wait_part(Playing& playing, int half);
  void spend_part(Playing& playing, int half, Op op, int part);

  Options options_;
  std::unique_ptr<AllToAll> exchange_;
  std::vector<std::byte> bytes_;                    // of any message; what they say is nothing
  std::vector<std::span<const std::byte>> pieces_;  // one
  std::vector<std::span<const std::span<const std::byte>>> messages_;  // by peer
  std::array<Half, kMaxHalves> halves_;
  // Of a half's parts: lanes still waited for, and the one that is being computed.
  struct Parts {
    std::array<int, kMaxParts> open{};
    int num_open = 0, at = 0, num_done = 0;
  };
  std::array<Parts, kMaxHalves> parts_;
  uint64_t step_ = 0;
};

}  // namespace hocket
