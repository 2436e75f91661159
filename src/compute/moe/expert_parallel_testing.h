// A rank with rows and experts so simple that a test knows the results. Tests only.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "compute/moe/expert_parallel.h"
#include "compute/moe/testing.h"

namespace hocket::testing {

inline constexpr int kRanks = 3, kExperts = 12, kHere = kExperts / kRanks, kTopK = 3;
inline constexpr int kHidden = 40, kMaxRows = 9, kGroups = 6;

enum class Wire : uint8_t { plain, int8 };

// Returns the experts of a row.
using Choice = std::function<std::array<int, kTopK>(int rank, int row)>;

// One rank whose numbers are known: 1000 * rank + row + column / 64.
struct ExpertRank {
  // With `present` the ranks of that set exchange, and have all experts.
  ExpertRank(Transport& end, const Choice& choice, Wire wire = Wire::plain,
             std::optional<RankSet> present_in = {})
      : present(present_in),
        placement(places_of(present)),
        limits{.max_rows = kMaxRows,
               .max_output_rows = 1,
               .max_logits_rows = 1,
               .exchange = ExpertParallelDispatcher::exchange_limits(placement, kMaxRows),
               .int8_dispatch = wire == Wire::int8},
        backend(*Backend::create(Isa::ref, workers, 1 << 16)),
        work(*WorkBuffers::create(model, DType::f32, limits)) {
    exchange = *AllToAll::create(
        end, {.max_bytes = ExpertParallelDispatcher::max_bytes(options()), .present = present});
    dispatcher = *ExpertParallelDispatcher::create(options(), *exchange);
    choose(choice);
  }
  void choose(const Choice& choice) {
    for (int row = 0; row < kMaxRows; ++row) {
      for (int i = 0; i < kHidden; ++i)
        work.normed.as<float>().row(row)[i] = number(exchange->rank(), row, i);
      const std::array<int, kTopK> experts = choice(exchange->rank(), row);
      for (int s = 0; s < kTopK; ++s) {
        work.expert_ids.row(row)[s] = experts[s];
        work.expert_weights.row(row)[s] = 0.25f * static_cast<float>(s + 1);
      }
    }
  }
  static float number(int rank, int row, int column) {
    return static_cast<float>(1000 * rank + row) + static_cast<float>(column) / 64;
  }
  // Returns the number as experts receive it. The last number of a row is its largest.
  float given(int rank, int row, int column) const {
    const float x = number(rank, row, column), amax = number(rank, row, kHidden - 1);
    return limits.int8_dispatch ? std::nearbyint(x * (127 / amax)) * (amax / 127) : x;
  }
  ExpertParallelDispatcher::Options options() const {
    return {.model = model,
            .dtype = DType::f32,
            .placement = placement,
            .combine_groups = present ? kExperts : kGroups,
            .any_placement = present.has_value(),
            .limits = limits};
  }
  static Placement places_of(const std::optional<RankSet>& ranks) {
    const Placement all = *Placement::contiguous(kExperts, kRanks);
    return ranks ? all.filled_to(kExperts / 2).among(*ranks) : all;
  }
  Half start(int index, int begin, int count) {
    Half half{.index = index, .rows = {begin, count}};
    half.state.normed.set(work.normed.slice_rows(begin, count));
    half.state.routing.set({.ids = work.expert_ids.slice_rows(begin, count),
                            .weights = work.expert_weights.slice_rows(begin, count)});
    dispatcher->dispatch_start(context(), half);
    return half;
  }
  // Runs experts that return their input: of the wave, or with the first wave of the part if all
  // waves' first products are computed then.
  void compute(Half& half) {
    const ExpertRows rows = half.state.arrived.take();
    const std::span<const int32_t> offsets =
        rows.gate_up_offsets.empty() ? rows.offsets : rows.gate_up_offsets;
    for (int64_t r = offsets.front(); r < offsets.back() && !rows.gate_up_done; ++r)
      std::copy_n(rows.x.as<float>().row(r), kHidden, rows.y.as<float>().row(r));
    half.state.computed.set(rows);
    dispatcher->combine_start(context(), half);
  }
  ExchangeContext context() { return {backend, work}; }

  ModelConfig model = one_moe_layer(kExperts, kTopK, kHidden);
  std::optional<RankSet> present;
  Placement placement;
  WorkLimits limits;
  WorkerPool workers{{}};
  Backend backend;
  WorkBuffers work;
  std::unique_ptr<AllToAll> exchange;  // destroyed before the memory that it sends from
  std::unique_ptr<ExpertParallelDispatcher> dispatcher;
};

// Three neighbours, so that a token has several experts on one rank and some on another.
inline std::array<int, kTopK> neighbours(int rank, int row) {
  const int first = (5 * rank + 7 * row) % kExperts;
  return {(first + 2) % kExperts, first, (first + 1) % kExperts};
}
}  // namespace hocket::testing
