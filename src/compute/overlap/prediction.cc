#include "compute/overlap/prediction.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compute/overlap/plan.h"

namespace hocket {
namespace {

using Picoseconds = int64_t;

constexpr double kPicosecondsPerUs = 1e6;
constexpr double kLongestUs = 1e9;    // the longest time of one operation; sums do not overflow
constexpr int kTicksForPeriod = 512;  // an order without a period by then gets the average

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
    bool out = false, home = false;
    bool operator==(const Travel&) const = default;
  };
  Picoseconds now = 0, busy = 0;  // busy: the link is busy until then
  std::array<Travel, kMostPredictedHalves> halves{};
  Picoseconds dispatch_exposed = 0, combine_exposed = 0;
  double period_us = 0;  // 0: not known yet

  Picoseconds exposed() const { return dispatch_exposed + combine_exposed; }
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
  void shift(Picoseconds by) {
    now += by, busy += by;
    for (Travel& half : halves) half.base += by, half.back += by;
  }
  // Returns all that decides what follows, relative to `now`.
  Core relative() const {
    Core seen;
    seen.busy = std::max<Picoseconds>(busy - now, 0);
    for (size_t i = 0; i < halves.size(); ++i) {
      const Travel& half = halves[i];
      if (half.out) seen.halves[i] = {.base = half.base - now, .out = true};
      if (half.home) seen.halves[i].back = std::max<Picoseconds>(half.back - now, 0);
      seen.halves[i].home = half.home;
    }
    return seen;
  }
};

Predictor::Predictor(std::span<const StageTimes> halves, int parts, const LayerCounts& layers)
    : num_halves_(static_cast<int>(halves.size())), parts_(parts), layers_(layers) {
  HOCKET_CHECK(num_halves_ >= 1 && num_halves_ <= kMostPredictedHalves);
  HOCKET_CHECK(parts >= 1 && parts <= kMaxParts);
  for (size_t i = 0; i < halves.size(); ++i) {
    const StageTimes& times = halves[i];
    Half& half = halves_[i];
    half.dispatch = {to_ps(times.dispatch.busy_us), to_ps(times.dispatch.latency_us)};
    half.combine = {to_ps(times.combine.busy_us), to_ps(times.combine.latency_us)};
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
    const bool is_last = part == parts_ - 1;
    core.wait(travel.base + (is_last ? times.dispatch.busy : each * (part + 1)),
              core.dispatch_exposed);
    core.now += part_of(times.moe[static_cast<size_t>(Op::dispatch_wait)], part, parts_);
    travel.out = !is_last;
  };
  const auto send_back = [&](int part) {
    core.now += part_of(times.moe[static_cast<size_t>(Op::combine_start)], part, parts_);
    core.send(part_of(times.combine.busy, part, parts_));
    travel.back = core.busy + times.combine.latency;
    travel.home = true;
  };
  switch (op) {
    case Op::dispatch_start:
      core.now += time;
      travel.base = core.send(times.dispatch.busy) + times.dispatch.latency;
      travel.out = true;
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
      travel.home = false;
      break;
    default:
      core.now += time;
  }
}

void Predictor::play_tick(Core& core, const Order& order, int tick, int num_layers) const {
  for (const Slot& slot : order.slots) {
    const int layer = tick - slot.lag;
    if (layer < 0 || layer >= num_layers) continue;
    if (layer < layers_.num_dense) {
      core.now += halves_[slot.half].dense[static_cast<size_t>(slot.op)];
    } else {
      play_slot(core, slot.half, slot.op);
    }
  }
}

// Plays the ticks in which every slot has a MoE layer. Once the state relative to `now` equals the
// one of some ticks ago, it repeats for ever, so whole cycles are multiplied:
//
//   tick    0 .. marked | one cycle | the same, `rounds` times, not played | the rest, played
//
// Returns false at the limit.
bool Predictor::play_steady(Core& core, const Order& order, int num_ticks,
                            Picoseconds limit) const {
  Core before = core, mark = core.relative();  // a cycle might begin here
  int marked = 0;
  bool is_known = false;
  for (int tick = 1; tick <= num_ticks; ++tick) {
    for (const Slot& slot : order.slots) play_slot(core, slot.half, slot.op);
    if (core.exposed() + compute_ >= limit) return false;
    if (is_known) continue;
    const Core seen = core.relative();
    if (seen.busy == mark.busy && seen.halves == mark.halves) {
      is_known = true;
      const int cycle = tick - marked, rounds = (num_ticks - tick) / cycle;
      core.period_us = us_of(core.now - before.now) / cycle;
      core.dispatch_exposed += rounds * (core.dispatch_exposed - before.dispatch_exposed);
      core.combine_exposed += rounds * (core.combine_exposed - before.combine_exposed);
      core.shift(rounds * (core.now - before.now));
      tick += rounds * cycle;
    } else if (tick == 2 * marked || marked == 0) {
      mark = seen, before = core, marked = tick;
    }
  }
  return core.exposed() + compute_ < limit;
}

bool Predictor::play(Core& core, const Order& order, Picoseconds limit) const {
  HOCKET_CHECK(order.num_halves == num_halves_);
  const int num_layers = layers_.num_layers(), lag = order.lag_max();
  const int steady_begin = layers_.num_dense + lag;
  int tick = 0;
  for (; tick < std::min(steady_begin, num_layers + lag); ++tick)
    play_tick(core, order, tick, num_layers);
  if (num_layers > steady_begin) {
    if (!play_steady(core, order, num_layers - steady_begin, limit)) return false;
    tick = num_layers;
  }
  for (; tick < num_layers + lag; ++tick) play_tick(core, order, tick, num_layers);
  return true;
}

double Predictor::step_us(const Order& order, double limit_us) const {
  const double left = (limit_us - layers_.beside_us) * kPicosecondsPerUs;
  constexpr auto kNever = std::numeric_limits<Picoseconds>::max();
  const Picoseconds limit = left < 9e18 ? static_cast<Picoseconds>(left) + 1 : kNever;
  Core core;
  if (compute_ >= limit || !play(core, order, limit)) return kNoLimit;
  const double step = us_of(core.now) + layers_.beside_us;
  return step < limit_us ? step : kNoLimit;
}

// Returns the period [us] of an endless sequence of MoE layers.
double Predictor::steady_period_us(const Order& order) const {
  if (layers_.num_moe == 0) return 0;
  Core core;
  const int lag = order.lag_max();
  for (int tick = 0; tick < lag; ++tick)
    for (const Slot& slot : order.slots)
      if (tick >= slot.lag) play_slot(core, slot.half, slot.op);
  constexpr auto kNever = std::numeric_limits<Picoseconds>::max();
  play_steady(core, order, kTicksForPeriod, kNever);
  if (core.period_us > 0) return core.period_us;
  const Picoseconds before = core.now;
  play_steady(core, order, kTicksForPeriod, kNever);
  return us_of(core.now - before) / kTicksForPeriod;
}

Prediction Predictor::predict(const Order& order) const {
  Core core;
  play(core, order, std::numeric_limits<Picoseconds>::max());
  Picoseconds link = 0;
  for (const Half& half : halves_) link += half.dispatch.busy + half.combine.busy;
  return {.step_us = us_of(core.now) + layers_.beside_us,
          .period_us = steady_period_us(order),
          .exposed_us = us_of(core.exposed()),
          .dispatch_exposed_us = us_of(core.dispatch_exposed),
          .combine_exposed_us = us_of(core.combine_exposed),
          .compute_us = us_of(compute_),
          .link_us = us_of(layers_.num_moe * link)};
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
  return us_of(std::max({compute_, link, chain})) + layers_.beside_us;
}

Prediction predict(const PlanTimes& plan, const LayerCounts& layers) {
  return Predictor(plan.halves, plan.parts, layers).predict(plan.order);
}

double lower_bound_us(std::span<const StageTimes> halves, const LayerCounts& layers, int parts) {
  return Predictor(halves, parts, layers).lower_bound_us();
}

}  // namespace hocket
