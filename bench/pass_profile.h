// Where a pass spends its time, by operation: what `hocket bench one-batch --by-operation` prints.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "compute/overlap/executor.h"
#include "engine/forecast/cost.h"

namespace hocket {

// The operations of the layers, and what comes after them: final norm and output head.
struct PassProfile {
  struct Stage {
    double seconds = 0, bytes = 0;  // bytes: of weights and keys that had to be read
    Operations operations;
  };
  std::array<Stage, kNumOps> stages{};
  Stage head;

  Stage& of(Op op) { return stages[static_cast<size_t>(op)]; }
  void add(const PassProfile& other);
  // Adds what a pass of this shape had to read and compute. experts_all: of all layers.
  void add_work(const PassShape& pass, const ModelCost& cost, int experts_all);
};

// Reads the clock after each operation, and counts the distinct experts of each layer's rows.
class PassProbe final : public ForwardProbe {
 public:
  void begin() { at_ = RealClock().now(); }
  void after(int layer, Op op, const Half& half) override;
  // After the logits. What was counted since the last one.
  struct Found {
    PassProfile profile;  // seconds alone
    int64_t experts_hit = 0;
  };
  Found end();

 private:
  void book(PassProfile::Stage& stage);

  TimePoint at_{};
  Found found_;
};

// "experts 2.31 ms 52 % [0.81 read]", one line an operation that took 1 % or more, of `passes` on
// average; [x read, y peak] are shares of what the machine can do.
std::string by_operation(const PassProfile& profile, int passes, const MachineSpeed& speed);
nlohmann::ordered_json by_operation_json(const PassProfile& profile, int passes,
                                         const MachineSpeed& speed);

}  // namespace hocket
