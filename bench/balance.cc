#include "bench/balance.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "compute/moe/balancer.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kExponents = {0.5, 0.8, 1.2};
constexpr std::array kBalancedRanks = {8, 32, 128};
constexpr std::array kReplicaShares = {0.0, 0.12, 0.5};
constexpr int kNodeRanks = 8, kExpertGroups = 8;  // for the hierarchical policy

// Means over layers.
struct BalanceFigures {
  double balancedness = 0, moves = 0, us = 0;
};

template <class Place>
BalanceFigures measure(const BenchBalanceOptions& o, double exponent, const Placement& before,
                       Place place) {
  BalanceFigures sum;
  for (int layer = 0; layer < o.num_layers; ++layer) {
    const std::vector<uint64_t> loads = power_law(o.num_experts, exponent, layer);
    const TimePoint begin = RealClock().now();
    const Placement after = place(loads);
    sum.us += to_us(RealClock().now() - begin) / o.num_layers;
    sum.balancedness += rank_loads(loads, after).balancedness() / o.num_layers;
    sum.moves += static_cast<double>(num_moves(before, after)) / o.num_layers;
  }
  return sum;
}

void print_case(const BenchBalanceOptions& o, double exponent, int ranks, int replicas) {
  using Loads = const std::vector<uint64_t>&;
  const Placement before = Placement::contiguous(o.num_experts, ranks)->with_replicas(replicas);
  const BalanceShape global = {.num_ranks = ranks, .num_places = before.num_places()};
  BalanceShape hierarchical = global;
  hierarchical.num_groups = kExpertGroups;
  hierarchical.num_nodes = std::max(1, ranks / kNodeRanks);
  const std::pair<const char*, BalanceFigures> all[] = {
      {"trivial", measure(o, exponent, before, [&](Loads) { return Placement(before); })},
      {"hierarchical",
       measure(o, exponent, before,
               [&](Loads loads) { return published_placement(loads, hierarchical); })},
      {"global", measure(o, exponent, before,
                         [&](Loads loads) { return published_placement(loads, global); })},
      {"auto", measure(o, exponent, before,
                       [&](Loads loads) {
                         return improved_placement(loads, published_placement(loads, global));
                       })},
      {"few-moves", measure(o, exponent, before,
                            [&](Loads loads) { return improved_placement(loads, before); })}};
  const int num_replicas = replicas * ranks;
  if (o.json) {
    Json line = {{"zipf", exponent}, {"ranks", ranks}, {"replicas", num_replicas}};
    for (const auto& [name, figures] : all)
      line[name] = {
          {"balancedness", figures.balancedness}, {"moves", figures.moves}, {"us", figures.us}};
    fmt::print("{}\n", line.dump());
    return;
  }
  fmt::print("{:4.1f} {:5} {:8}", exponent, ranks, num_replicas);
  for (const auto& [name, figures] : all) fmt::print(" {:12.3f}", figures.balancedness);
  for (const auto& [name, figures] : std::span(all).subspan(1))
    fmt::print(" {:6.0f}", figures.moves);
  fmt::print(" {:8.0f} {:8.0f}\n", all[2].second.us, all[3].second.us);
}

}  // namespace

std::vector<uint64_t> power_law(int num_experts, double exponent, int seed) {
  std::vector<uint64_t> loads;
  for (int i = 1; i <= num_experts; ++i)
    loads.push_back(static_cast<uint64_t>(std::llround(1e6 * std::pow(i, -exponent))));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::ranges::shuffle(loads, random);
  return loads;
}

int bench_balance(const BenchBalanceOptions& o) {
  if (!o.json)
    fmt::print(
        "{} experts, {} layers; balancedness = mean / largest load of a rank; moves = experts to "
        "load, from trivial\n"
        "{:>4} {:>5} {:>8} {:>12} {:>12} {:>12} {:>12} {:>12} {:>27} {:>17}\n",
        o.num_experts, o.num_layers, "zipf", "ranks", "replicas", "trivial", "hierarchical",
        "global", "auto", "few-moves", "moves of these four", "us: global, auto");
  for (const double exponent : kExponents)
    for (const int ranks : kBalancedRanks) {
      if (ranks > o.num_experts || o.num_experts % ranks != 0) continue;
      int last = -1;
      for (const double share : kReplicaShares) {
        // Every rank has as many places, so small shares are rounded up to one replica a rank.
        const auto each = static_cast<int>(std::ceil(share * o.num_experts / ranks));
        const int most = o.num_experts - o.num_experts / ranks;
        if (each != last && each <= most) print_case(o, exponent, ranks, each);
        last = each;
      }
    }
  return 0;
}

}  // namespace hocket
