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
constexpr double kMaxOperationUs = 1e9;  // the longest time of one operation; sums do not overflow

Picoseconds to_ps(double us) {
  if (!(us > 0)) return 0;  // also NaN
  return std::llround(std::min(us, kMaxOperationUs) * kPicosecondsPerUs);
}

double us_of(Picoseconds ps) {
  return static_cast<double>(ps) / kPicosecondsPerUs;
}

// Returns the link's time for each wave of a combine that takes `busy` in all.
std::array<Picoseconds, kMaxParts> time_of_waves(const TransferTime& combine, Picoseconds busy,
                                                 const Grain& grain) {
  std::array<Picoseconds, kMaxParts> waves{};
  const int num = grain.num_waves();
  const bool are_equal = grain.parts > 1 || combine.spread == 1;
  Picoseconds before = 0;
  for (int wave = 0; wave < num; ++wave) {
    const double share = combine.share_of_waves(wave + 1, grain);
    const Picoseconds sent = std::llround(share * static_cast<double>(busy));
    waves[static_cast<size_t>(wave)] = are_equal ? time_of_piece(busy, wave, num) : sent - before;
    before = sent;
  }
  return waves;
}

constexpr int kMaxPeriod = 8;  // the longest sequence of kinds that is looked for

// Says if a layer has this operation.
constexpr bool has(Op op, bool is_dense) {
  return is_attention(op) || (op == Op::mlp) == is_dense;
}

}  // namespace

// The state of one rank in a step; all other ranks are in the same state.
struct Predictor::Core {
  struct TransferTimes {
    Picoseconds base = 0;  // part p of a dispatch arrives at base + (p + 1) * busy / parts
    Picoseconds back = 0;  // the last part of a combine arrives
  };
  Picoseconds now = 0, busy = 0;  // busy: the link is busy until then
  std::array<TransferTimes, 2> halves{};
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
  // If all times of these halves have moved alike since `before`, moves them so `count` times more.
  bool repeat(const Core& before, int num_halves, int count) {
    const Picoseconds step = now - before.now;
    bool is_alike = busy - before.busy == step;
    for (size_t i = 0; i < static_cast<size_t>(num_halves); ++i)
      is_alike &= halves[i].base - before.halves[i].base == step &&
                  halves[i].back - before.halves[i].back == step;
    if (!is_alike) return false;
    now += count * step, busy += count * step;
    for (TransferTimes& half : halves) half.base += count * step, half.back += count * step;
    dispatch_exposed += count * (dispatch_exposed - before.dispatch_exposed);
    combine_exposed += count * (combine_exposed - before.combine_exposed);
    return true;
  }
};

Predictor::Predictor(std::span<const StageTimes> halves, const Grain& grain,
                     const LayerCounts& layers)
    : num_halves_(static_cast<int>(halves.size())), grain_(grain), layers_(layers) {
  HOCKET_CHECK(num_halves_ >= 1 && num_halves_ <= 2);
  HOCKET_CHECK(grain.parts >= 1 && grain.waves >= 1 && grain.num_waves() <= kMaxParts);
  for (size_t i = 0; i < halves.size(); ++i) {
    const StageTimes& times = halves[i];
    Half& half = halves_[i];
    half.dispatch = {to_ps(times.dispatch.busy_in(grain)), to_ps(times.dispatch.latency_us)};
    half.combine = {to_ps(times.combine.busy_in(grain)), to_ps(times.combine.latency_us)};
    half.waves = time_of_waves(times.combine, half.combine.busy, grain);
    half.up_first = times.up_first;
    for (int wave = 0; wave < grain.num_waves(); ++wave) {
      Picoseconds& added = half.added[static_cast<size_t>(wave)];
      added = to_ps(times.added_us(grain, wave));
      compute_ += layers.num_moe * added;
    }
    for (size_t index = 0; index < layers.kinds.num_stages(); ++index) {
      const Stage stage = stage_at(index);
      if (stage.op == Op::shared && !layers.has_shared) continue;
      half.stages[index] = to_ps(times.compute[index]);
      compute_ += layers.count(stage) * half.stages[index];
    }
  }
  num_until_repeat_ = num_until_repeat();
}

// Returns after how many MoE layers the kinds of all that follow repeat; 0: they do not soon.
int Predictor::num_until_repeat() const {
  const LayerKinds& kinds = layers_.kinds;
  if (kinds.num() == 1) return 1;
  for (int period = 1; period <= kMaxPeriod; ++period) {
    int layer = layers_.num_dense + period;
    while (layer < layers_.num_layers() && kinds.of(layer) == kinds.of(layer - period)) ++layer;
    if (layer >= layers_.num_layers()) return period;
  }
  return 0;
}

// Waits for one part of a dispatch.
void Predictor::wait_part(Core& core, int half, int part) const {
  const Half& times = halves_[static_cast<size_t>(half)];
  const Picoseconds busy = times.dispatch.busy, each = busy / grain_.parts;
  core.wait(core.halves[static_cast<size_t>(half)].base +
                (part == grain_.parts - 1 ? busy : each * (part + 1)),
            core.dispatch_exposed);
  core.now += time_of_piece(times.stages[index_of({Op::dispatch_wait})], part, grain_.parts);
}

// Sends one wave back; waves are counted over all parts.
void Predictor::send_back(Core& core, int half, int wave) const {
  const Half& times = halves_[static_cast<size_t>(half)];
  const int waves = grain_.num_waves();
  core.now += time_of_piece(times.stages[index_of({Op::combine_start})], wave, waves);
  core.send(times.waves[static_cast<size_t>(wave)]);
  core.halves[static_cast<size_t>(half)].back = core.busy + times.combine.latency;
}

// Plays one operation of a layer that has it.
void Predictor::play_slot(Core& core, int half, const Stage& stage) const {
  const Half& times = halves_[static_cast<size_t>(half)];
  Core::TransferTimes& travel = core.halves[static_cast<size_t>(half)];
  const Picoseconds time = times.stages[index_of(stage)];
  const int waves = grain_.num_waves();
  switch (stage.op) {
    case Op::dispatch_start:
      core.now += time;
      travel.base = core.send(times.dispatch.busy) + times.dispatch.latency;
      break;
    case Op::dispatch_wait:
      wait_part(core, half, 0);
      break;
    case Op::experts:
      core.now += time_of_wave(time, grain_, 0, times.up_first);
      for (int wave = 1; wave < waves; ++wave) {
        send_back(core, half, wave - 1);
        if (wave % grain_.waves == 0) wait_part(core, half, wave / grain_.waves);
        core.now += time_of_wave(time, grain_, wave, times.up_first) +
                    times.added[static_cast<size_t>(wave)];
      }
      break;
    case Op::combine_start:
      send_back(core, half, waves - 1);
      break;
    case Op::combine_wait:
      core.wait(travel.back, core.combine_exposed);
      core.now += time;
      break;
    default:
      core.now += time;
  }
}

void Predictor::play_tick(Core& core, const Order& order, int tick) const {
  for (const Slot& slot : order.slots) {
    const int layer = tick - slot.lag;
    if (layer < 0 || layer >= layers_.num_layers() || !has(slot.op, layer < layers_.num_dense))
      continue;
    play_slot(core, slot.half, {slot.op, layers_.kinds.of(layer)});
  }
}

// Ticks of MoE layers alone repeat with the kinds of layers. Once all times have moved alike in a
// period, each period does the same until the last layer begins, so these are not played:
//
//   layers    l l l f | l l l f | l l l f | l l l f | l l      l: linear, f: full attention
//   moved by  91 us   | 93 us   | 93 us   | as before         the last period and the rest are
Predictor::Core Predictor::play(const Order& order) const {
  HOCKET_CHECK(order.num_halves == num_halves_);
  const int num_layers = layers_.num_layers(), max_lag = order.max_lag();
  Core core, before;
  int next =
      num_until_repeat_ > 0 ? layers_.num_dense + max_lag : num_layers;  // a period begins there
  bool is_first = true;
  for (int tick = 0; tick < num_layers + max_lag; ++tick) {
    if (tick == next && tick < num_layers) {
      const int periods = (num_layers - tick) / num_until_repeat_;
      if (!is_first && core.repeat(before, num_halves_, periods)) {
        tick += periods * num_until_repeat_;
        next = num_layers;
      } else {
        before = core;
        next += num_until_repeat_;
      }
      is_first = false;
    }
    play_tick(core, order, tick);
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
  constexpr std::array kChain = {Op::gate,    Op::dispatch_start, Op::dispatch_wait,
                                 Op::experts, Op::combine_start,  Op::combine_wait};
  const Picoseconds num_moe = layers_.num_moe, num_dense = layers_.num_dense;
  Picoseconds chain = 0, link = 0;
  auto before = std::numeric_limits<Picoseconds>::max(), after = before;
  for (int i = 0; i < num_halves_; ++i) {
    const Half& half = halves_[static_cast<size_t>(i)];
    const auto time = [&](Op op, int kind = 0) { return half.stages[index_of({op, kind})]; };
    // Attention of the first layers, with the MLPs of dense ones.
    const auto without_moe = [&](int num_layers) {
      Picoseconds sum = num_dense * time(Op::mlp);
      for (int kind = 0; kind < layers_.kinds.num(); ++kind)
        sum += layers_.kinds.count(kind, num_layers) *
               (time(Op::attn_in, kind) + time(Op::attn_core, kind));
      return sum;
    };
    const Picoseconds all = without_moe(layers_.num_layers());
    const Picoseconds until_moe =
        without_moe(std::min(layers_.num_dense + 1, layers_.num_layers()));
    Core core;
    for (const Op op : kChain) play_slot(core, i, {op});
    chain = std::max(chain, all + num_moe * core.now);
    link += num_moe * (half.dispatch.busy + half.combine.busy);
    before = std::min(before, until_moe + time(Op::gate) + time(Op::dispatch_start));
    after = std::min(after, half.combine.latency + time(Op::combine_wait));
  }
  if (num_moe > 0) link += before + after;
  return us_of(std::max({compute_, link, chain})) + layers_.other_us;
}

}  // namespace hocket
