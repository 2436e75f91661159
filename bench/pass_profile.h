// The time of a pass by operation, as `hocket bench one-batch --by-operation` prints it.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "compute/overlap/executor.h"
#include "engine/plan/cost.h"

namespace hocket {

// Time and work of each operation of the layers, and of `head`: final norm and output head. In
// layers with delta nets attn_core has two entries of its own: the net, and its output projection.
struct PassProfile {
  struct OpWork {
    double seconds = 0, bytes = 0;  // bytes are those of weights and keys that had to be read
    Operations operations;
  };
  std::array<OpWork, kNumOps> stages{};
  OpWork delta_net, delta_out, head;

  OpWork& of(Op op) { return stages[static_cast<size_t>(op)]; }
  void add(const PassProfile& other);
  // Adds the bytes and operations of a pass of this shape. experts_all is the number of experts in
  // all layers together.
  void add_work(const PassShape& pass, const ModelCost& cost, int experts_all);
};

// Reads the clock after each operation, and counts the distinct experts of each layer's rows.
class PassProbe final : public ForwardProbe {
 public:
  explicit PassProbe(const ModelConfig& model) : model_(model) {}
  void begin() { at_ = RealClock().now(); }
  void after(int layer, Op op, const Half& half) override;
  void after_delta_net() override { book(found_.profile.delta_net); }
  struct PassRecord {
    PassProfile profile;  // only the seconds are set
    int64_t experts_hit = 0;
  };
  // Call it after the logits. Returns the times and counts since the previous end().
  PassRecord end();

 private:
  void book(PassProfile::OpWork& stage);

  const ModelConfig& model_;
  TimePoint at_{};
  PassRecord found_;
};

// Returns a line for each operation that took 1 % or more, with its mean time over `passes`:
//   experts             3000 us  74.8 %  [0.80 read, 0.10 peak]
// The last two are the shares of the machine's read bandwidth and peak that it reached.
std::string by_operation(const PassProfile& profile, int passes, const MachineSpeed& speed);
nlohmann::ordered_json by_operation_json(const PassProfile& profile, int passes,
                                         const MachineSpeed& speed);

}  // namespace hocket
