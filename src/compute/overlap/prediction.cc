#include "compute/overlap/prediction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "compute/overlap/plan.h"

namespace hocket {
namespace {

using Picoseconds = int64_t;

constexpr double kPicosecondsPerUs = 1e6;
constexpr double kLongestUs = 1e9;  // the longest time of one operation; sums do not overflow

Picoseconds to_ps(double us) {
  if (!(us > 0)) return 0;  // also NaN
  return std::llround(std::min(us, kLongestUs) * kPicosecondsPerUs);
}

double us_of(Picoseconds ps) {
  return static_cast<double>(ps) / kPicosecondsPerUs;
}

// Returns the time of one part of `whole`; the first part also has the remainder.
Picoseconds part_of(Picoseconds whole, int part, int parts) {
  const Picoseconds each = whole / parts;
  return part == 0 ? whole - each * (parts - 1) : each;
}

constexpr bool is_of_dense(Op op) {
  return op == Op::attn_in || op == Op::attn_core || op == Op::mlp;
}

}  // namespace

// The state of one rank in a step; all other ranks are in the same state.
struct Predictor::Core {
  struct Travel {
    Picoseconds base = 0;  // part p of a dispatch arrives at base + (p + 1) * busy / parts
    Picoseconds back = 0;  // the last part of a combine arrives
  };
  Picoseconds now = 0, busy = 0;  // busy: the link is busy until then
  std::array<Travel, 2> halves{};
  Picoseconds dispatch_exposed = 0, combine_exposed = 0;

  void wait(Picoseconds there, Picoseconds& exposed) {
    if (there <= now) return;
    exposed += there - now;
    now = there;
  }
  // Puts a transfer of this length on the link; returns when it begins.
  Picoseconds send(Picoseconds length) {
    const Picoseconds begin = std::max(now, busy);
    busy = begin + length;
    return begin;
  }
};

Predictor::Predictor(std::span<const StageTimes> halves, int parts, const LayerCounts& layers)
    : num_halves_(static_cast<int>(halves.size())), parts_(parts), layers_(layers) {
  HOCKET_CHECK(num_halves_ >= 1 && num_halves_ <= 2);
  HOCKET_CHECK(parts >= 1 && parts <= kMaxParts);
  for (size_t i = 0; i < halves.size(); ++i) {
    const StageTimes& times = halves[i];
    Half& half = halves_[i];
    half.dispatch = {to_ps(times.dispatch.busy_in(parts)), to_ps(times.dispatch.latency_us)};
    half.combine = {to_ps(times.combine.busy_in(parts)), to_ps(times.combine.latency_us)};
    half.part = to_ps(times.part_us);
    compute_ += layers.num_moe * half.part * (parts - 1);
    for (size_t index = 0; index < kNumOps; ++index) {
      const auto op = static_cast<Op>(index);
      const Picoseconds time = to_ps(times.of(op));
      if (is_of_dense(op)) half.dense[index] = time;
      if (op != Op::mlp && (op != Op::shared || layers.has_shared)) half.moe[index] = time;
      compute_ += layers.num_dense * half.dense[index] + layers.num_moe * half.moe[index];
    }
  }
}

// Plays one operation of a MoE layer.
void Predictor::play_slot(Core& core, int half, Op op) const {
  const Half& times = halves_[static_cast<size_t>(half)];
  Core::Travel& travel = core.halves[static_cast<size_t>(half)];
  const Picoseconds time = times.moe[static_cast<size_t>(op)];
  const auto wait_part = [&](int part) {
    const Picoseconds each = times.dispatch.busy / parts_;
    core.wait(travel.base + (part == parts_ - 1 ? times.dispatch.busy : each * (part + 1)),
              core.dispatch_exposed);
    core.now += part_of(times.moe[static_cast<size_t>(Op::dispatch_wait)], part, parts_);
  };
  const auto send_back = [&](int part) {
    core.now += part_of(times.moe[static_cast<size_t>(Op::combine_start)], part, parts_);
    core.send(part_of(times.combine.busy, part, parts_));
    travel.back = core.busy + times.combine.latency;
  };
  switch (op) {
    case Op::dispatch_start:
      core.now += time;
      travel.base = core.send(times.dispatch.busy) + times.dispatch.latency;
      break;
    case Op::dispatch_wait:
      wait_part(0);
      break;
    case Op::experts:
      core.now += part_of(time, 0, parts_);
      for (int part = 1; part < parts_; ++part) {
        send_back(part - 1);
        wait_part(part);
        core.now += part_of(time, part, parts_) + times.part;
      }
      break;
    case Op::combine_start:
      send_back(parts_ - 1);
      break;
    case Op::combine_wait:
      core.wait(travel.back, core.combine_exposed);
      core.now += time;
      break;
    default:
      core.now += time;
  }
}

Predictor::Core Predictor::play(const Order& order) const {
  HOCKET_CHECK(order.num_halves == num_halves_);
  const int num_layers = layers_.num_layers();
  Core core;
  for (int tick = 0; tick < num_layers + order.lag_max(); ++tick)
    for (const Slot& slot : order.slots) {
      const int layer = tick - slot.lag;
      if (layer < 0 || layer >= num_layers) continue;
      if (layer < layers_.num_dense)
        core.now += halves_[slot.half].dense[static_cast<size_t>(slot.op)];
      else
        play_slot(core, slot.half, slot.op);
    }
  return core;
}

double Predictor::step_us(const Order& order) const {
  return us_of(play(order).now) + layers_.other_us;
}

Prediction Predictor::predict(const Order& order) const {
  const Core core = play(order);
  return {.step_us = us_of(core.now) + layers_.other_us,
          .exposed_us = us_of(core.dispatch_exposed + core.combine_exposed),
          .dispatch_exposed_us = us_of(core.dispatch_exposed),
          .combine_exposed_us = us_of(core.combine_exposed),
          .compute_us = us_of(compute_)};
}

double Predictor::lower_bound_us() const {
  constexpr std::array kChain = {Op::attn_in,        Op::attn_core,     Op::gate,
                                 Op::dispatch_start, Op::dispatch_wait, Op::experts,
                                 Op::combine_start,  Op::combine_wait};
  const Picoseconds num_moe = layers_.num_moe, num_dense = layers_.num_dense;
  Picoseconds chain = 0, link = 0;
  auto before = std::numeric_limits<Picoseconds>::max(), after = before;
  for (int i = 0; i < num_halves_; ++i) {
    const Half& half = halves_[static_cast<size_t>(i)];
    const auto moe = [&](Op op) { return half.moe[static_cast<size_t>(op)]; };
    Picoseconds dense = 0;
    for (const Picoseconds time : half.dense) dense += num_dense * time;
    Core core;
    for (const Op op : kChain) play_slot(core, i, op);
    chain = std::max(chain, dense + num_moe * core.now);
    link += num_moe * (half.dispatch.busy + half.combine.busy);
    before = std::min(before, dense + moe(Op::attn_in) + moe(Op::attn_core) + moe(Op::gate) +
                                  moe(Op::dispatch_start));
    after = std::min(after, half.combine.latency + moe(Op::combine_wait));
  }
  if (num_moe > 0) link += before + after;
  return us_of(std::max({compute_, link, chain})) + layers_.other_us;
}

}  // namespace hocket
