#include "engine/balance/expert_changes.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "compute/moe/balancer.h"

namespace hocket {
namespace {

// Work is balanced in these parts of a row.
constexpr double kPartsOfARow = 1024;

std::vector<uint64_t> work_of(std::span<const uint64_t> counts, uint64_t num_steps) {
  std::vector<uint64_t> work;
  for (const uint64_t count : counts) {
    const double rows = static_cast<double>(count) / static_cast<double>(num_steps);
    const double all = rows + kOpenedRows * rows / (rows + 1);
    work.push_back(static_cast<uint64_t>(all * kPartsOfARow));
  }
  return work;
}

int max_moves(const Placement& from, const Placement& to) {
  int most = 0;
  for (int rank = 0; rank < to.num_ranks(); ++rank)
    most = std::max(most, num_moves_of(rank, from, to));
  return most;
}

}  // namespace

double ExpertChanges::saved_share() const {
  double saved = 0;
  for (const LayerChange& layer : layers) saved += layer.before - layer.after;
  return work > 0 ? saved / work : 0;
}

uint32_t ExpertChanges::fingerprint() const {
  if (layers.empty()) return 0;
  uint32_t hash = 2166136261u;
  const auto mix_in = [&](uint32_t number) { hash = (hash ^ number) * 16777619u; };
  for (const LayerChange& layer : layers) {
    mix_in(static_cast<uint32_t>(layer.layer));
    mix_in(layer.to.fingerprint());
  }
  return std::max(hash, 1u);
}

ExpertChanges changes_for(std::span<const uint64_t> counts, uint64_t num_steps,
                          const Placements& now, const Rebalancer& rebalance,
                          const std::function<bool()>& is_over) {
  HOCKET_CHECK(num_steps > 0);
  const auto num_experts = static_cast<size_t>(now.first().num_experts());
  HOCKET_CHECK(counts.size() % num_experts == 0);
  ExpertChanges changes;
  int num_layers = 0;
  double before = 0, after = 0;
  for (int layer = 0; !counts.empty(); ++layer, counts = counts.subspan(num_experts)) {
    if (is_over && is_over()) return {};
    const std::vector<uint64_t> work = work_of(counts.first(num_experts), num_steps);
    const Placement& from = now.at(layer);
    const RankLoads is = rank_loads(work, from);
    if (is.largest <= 0) continue;
    Placement to = rebalance(work, from, is_over);
    RankLoads will = rank_loads(work, to);
    if (will.largest <= (1 - kMinRelief) * is.largest && to.fingerprint() != from.fingerprint())
      changes.layers.push_back({.layer = layer,
                                .to = to,
                                .before = is.largest / kPartsOfARow,
                                .after = will.largest / kPartsOfARow,
                                .num_moves = num_moves(from, to),
                                .max_moves = max_moves(from, to)});
    else
      will = is;
    ++num_layers;
    changes.work += is.largest / kPartsOfARow;
    before += is.balancedness();
    after += will.balancedness();
  }
  if (num_layers > 0) {
    changes.balancedness_before = before / num_layers;
    changes.balancedness_after = after / num_layers;
  }
  for (const LayerChange& layer : changes.layers) changes.num_moves += layer.num_moves;
  const auto gain = [](const LayerChange& layer) {
    return (layer.before - layer.after) / std::max(layer.num_moves, 1);
  };
  std::ranges::stable_sort(changes.layers, std::ranges::greater(), gain);
  return changes;
}

}  // namespace hocket
