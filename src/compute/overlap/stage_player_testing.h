// Plays a plan as a pass would, over a real exchange, but with given stage times instead of a
// model: to measure orders and to prove predictions. Each rank has one. If all ranks are equal, a
// step over the loopback in virtual time takes what predict() says, to the nanosecond.
// Thread: that of the transport. Allocates nothing after construction.
#pragma once

#include <memory>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/forward/half.h"
#include "compute/overlap/plan.h"
#include "compute/overlap/prediction.h"

namespace hocket {

// A plan in numbers: stage times of each half.
struct PlanTimes {
  const Order& order;
  std::span<const StageTimes> halves;  // one for each of order.num_halves
  Grain grain;
};
Prediction predict(const PlanTimes& plan, const LayerCounts& layers);

// Makes time pass during operations; it may also watch what is played.
class StageWork {
 public:
  virtual ~StageWork() = default;
  // Computes for `time` (LoopbackHub::spend).
  virtual void spend(Duration time) = 0;
  // These two are called around every operation; `experts` includes the parts that are sent and
  // waited for in it.
  virtual void begin_op(int /*layer*/, Op /*op*/, int /*half*/) {}
  virtual void end_op() {}
};

class StagePlayer {
 public:
  struct Options {
    LayerCounts layers;
    // The rate of the links. A transfer's busy_us becomes busy_us * bytes_per_s bytes over all
    // peers, heads included (a message is at least its head). Only times matter, so with a made-up
    // link a lower rate saves memory.
    double bytes_per_s = 1e9;
    double longest_busy_us = 0;  // the longest transfer; it limits the length of messages
    // The rows of each rank's experts, as a multiple of the mean, below the number of ranks: what a
    // dispatch sends is shared out so. Empty: evenly.
    std::vector<double> loads = {};
    int num_halves = kMaxHalves;
    ExchangeListener* watch = nullptr;  // outlives the player
  };
  // The transport outlives the player. Errors: out_of_memory.
  static Result<std::unique_ptr<StagePlayer>> create(Transport& transport, const Options& options);

  // Plays one step, without other work. Errors: lost_rank.
  Result<void> play(const PlanTimes& plan, StageWork& work);
  AllToAll& exchange() { return *exchange_; }
  uint64_t num_steps() const { return step_; }

 private:
  struct Playing;  // the step that is played

  StagePlayer(Options options, std::unique_ptr<AllToAll> exchange, size_t max_bytes);
  void run_op(Playing& playing, int layer, Op op, int half);
  void start(Playing& playing, int half, int message, MessageKind kind);
  int wait_part(Playing& playing, int half);
  void send_back(Playing& playing, int half);

  const Options options_;
  std::unique_ptr<AllToAll> exchange_;
  std::vector<std::byte> bytes_;  // the bytes of every message; their values mean nothing
  std::vector<std::span<const std::byte>> pieces_;  // the one piece of the message to each rank
  std::vector<std::span<const std::span<const std::byte>>> messages_;  // one per rank
  std::array<Half, kMaxHalves> halves_;
  // The parts of a half: the lanes that are still waited for (open), the part that is computed
  // (at), and the parts and waves so far.
  struct Parts {
    std::array<int, kMaxParts> open{};
    int num_open = 0, at = 0, num_done = 0, num_waves = 0;
  };
  std::array<Parts, kMaxHalves> parts_;
  uint64_t step_ = 0;
};

}  // namespace hocket
