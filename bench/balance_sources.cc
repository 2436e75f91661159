#include "bench/balance_sources.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "compute/moe/balancer.h"
#include "engine/balance/expert_changes.h"

namespace hocket {
namespace {

constexpr std::array kSkews = {0.8, 1.2};
constexpr std::array kSourceRanks = {2, 8, 32};
// The share of a rank's rows that choose experts after a law of its own.
constexpr std::array kOwnShares = {0.0, 0.25, 0.5, 1.0};
// The exchange's time over that of the experts, where experts are in order and rows are alike.
constexpr std::array kExchangeShares = {0.25, 1.0};
constexpr int kSourceRows = 64, kChosenExperts = 8;
constexpr double kMinImprovement = 1e-4;  // a change saves this share of the time
constexpr int kMaxSweeps = 20;

// The share of its slots with which each rank's rows choose each expert, [ranks][experts].
using SourceShares = std::vector<std::vector<double>>;

SourceShares draw_shares(const BenchBalanceOptions& o, double exponent, int ranks, double own,
                         int layer) {
  const auto law = [&](int seed) {
    const std::vector<uint64_t> loads = power_law(o.num_experts, exponent, seed);
    double sum = 0;
    for (const uint64_t load : loads) sum += static_cast<double>(load);
    std::vector<double> shares;
    for (const uint64_t load : loads) shares.push_back(static_cast<double>(load) / sum);
    return shares;
  };
  const std::vector<double> common = law(layer);
  SourceShares all;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> shares = law(1000 * (layer + 1) + rank);
    for (size_t e = 0; e < shares.size(); ++e) shares[e] = own * shares[e] + (1 - own) * common[e];
    all.push_back(std::move(shares));
  }
  return all;
}

// The work of each expert in a step (expert_changes.h), in rows.
std::vector<double> work_of(const SourceShares& sources) {
  std::vector<double> work(sources.front().size());
  for (const std::vector<double>& shares : sources)
    for (size_t e = 0; e < work.size(); ++e) work[e] += kSourceRows * kChosenExperts * shares[e];
  for (double& rows : work) rows += kOpenedRows * rows / (rows + 1);
  return work;
}

// A row travels to a rank once if any of its slots is there (StageEstimate). `share` is that of its
// slots which are there, and slots are drawn one by one.
double copies(double share) {
  return 1 - std::pow(1 - std::clamp(share, 0.0, 1.0), kChosenExperts);
}

// The time of a layer, in rows of one expert.
struct LayerTime {
  double work = 0;      // that of the busiest rank
  double exchange = 0;  // rows that travel, on the rank that sends or receives most
};

// Experts on ranks without replicas, while they change places.
class SourcePlacing {
 public:
  // row_time: that of a row that travels.
  SourcePlacing(const SourceShares& sources, const Placement& now, double row_time)
      : sources_(sources),
        expert_work_(work_of(sources)),
        row_time_(row_time),
        num_ranks_(now.num_ranks()),
        work_(num_ranks_),
        there_(num_ranks_, std::vector<double>(num_ranks_)) {
    for (size_t rank = 0; rank < num_ranks_; ++rank) {
      const std::span<const int> held = now.experts_of(static_cast<int>(rank));
      experts_.emplace_back(held.begin(), held.end());
      for (const int expert : held) {
        work_[rank] += expert_work_[static_cast<size_t>(expert)];
        for (size_t source = 0; source < num_ranks_; ++source)
          there_[rank][source] += sources_[source][static_cast<size_t>(expert)];
      }
    }
  }

  LayerTime time() const {
    LayerTime time;
    std::vector<double> sent(num_ranks_);
    for (size_t rank = 0; rank < num_ranks_; ++rank) {
      double received = 0;
      for (size_t source = 0; source < num_ranks_; ++source) {
        if (source == rank) continue;
        const double rows = kSourceRows * copies(there_[rank][source]);
        received += rows;
        sent[source] += rows;
      }
      time.work = std::max(time.work, work_[rank]);
      time.exchange = std::max(time.exchange, received);
    }
    time.exchange = std::max(time.exchange, std::ranges::max(sent));
    return time;
  }

  // Lets pairs of experts take each other's place as long as that shortens the work of the busiest
  // rank with the mean exchange. The mean, because all ranks exchange equally much in most
  // placements, and no single change lowers all of them.
  void bring_near() {
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep)
      if (!try_all_pairs()) return;
  }

 private:
  bool try_all_pairs() {
    bool has_changed = false;
    for (size_t a = 0; a < num_ranks_; ++a)
      for (size_t b = a + 1; b < num_ranks_; ++b)
        for (int& one : experts_[a])
          for (int& other : experts_[b]) has_changed |= try_pair({a, b}, one, other);
    return has_changed;
  }

  // Returns whether `one` of ranks.first and `other` of ranks.second took each other's place.
  bool try_pair(std::pair<size_t, size_t> ranks, int& one, int& other) {
    const double before = busiest() + row_time_ * mean_rows(ranks);
    exchange(ranks, one, other);
    const double after = busiest() + row_time_ * mean_rows(ranks);
    if (after < before * (1 - kMinImprovement)) {
      std::swap(one, other);
      return true;
    }
    exchange(ranks, other, one);
    return false;
  }

  double busiest() const { return std::ranges::max(work_); }

  // Returns the part of the mean rank's rows that travel to these two ranks.
  double mean_rows(std::pair<size_t, size_t> ranks) const {
    double sum = 0;
    for (const size_t rank : {ranks.first, ranks.second})
      for (size_t source = 0; source < num_ranks_; ++source)
        if (source != rank) sum += copies(there_[rank][source]);
    return kSourceRows * sum / static_cast<double>(num_ranks_);
  }

  void exchange(std::pair<size_t, size_t> ranks, int one, int other) {
    const auto a = static_cast<size_t>(one), b = static_cast<size_t>(other);
    const double more = expert_work_[b] - expert_work_[a];
    work_[ranks.first] += more;
    work_[ranks.second] -= more;
    for (size_t source = 0; source < num_ranks_; ++source) {
      const double share = sources_[source][b] - sources_[source][a];
      there_[ranks.first][source] += share;
      there_[ranks.second][source] -= share;
    }
  }

  const SourceShares& sources_;
  const std::vector<double> expert_work_;
  const double row_time_;
  const size_t num_ranks_;
  std::vector<std::vector<int>> experts_;   // [ranks]
  std::vector<double> work_;                // [ranks]
  std::vector<std::vector<double>> there_;  // [ranks][sources]: the share of their slots there
};

// The step times of a placement over those of `auto`, means of the layers.
struct SourceFigures {
  double serial = 0;                    // work and exchange one after the other
  double overlapped = 0;                // the longer of both: no order of halves is faster
  double auto_rows = 0, near_rows = 0;  // rows that travel, of those that rank 0 would send to all
};

SourceFigures measure_sources(const BenchBalanceOptions& o, double exponent, int ranks, double own,
                              double exchange_share) {
  SourceFigures sum;
  const Placement in_order = *Placement::contiguous(o.num_experts, ranks);
  const BalanceShape shape = {.num_ranks = ranks, .num_places = in_order.num_places()};
  for (int layer = 0; layer < o.num_layers; ++layer) {
    const SourceShares sources = draw_shares(o, exponent, ranks, own, layer);
    std::vector<uint64_t> loads;
    for (const double work : work_of(sources)) loads.push_back(static_cast<uint64_t>(1024 * work));
    const Placement even = improved_placement(loads, published_placement(loads, shape));
    const double even_work = static_cast<double>(kSourceRows) * kChosenExperts;
    const double even_rows = kSourceRows * (ranks - 1) * copies(1.0 / ranks);
    const double row_time = exchange_share * even_work / even_rows;
    SourcePlacing placing(sources, even, row_time);
    const LayerTime before = placing.time();
    placing.bring_near();
    const LayerTime after = placing.time();
    const auto serial = [&](const LayerTime& t) { return t.work + row_time * t.exchange; };
    const auto overlapped = [&](const LayerTime& t) {
      return std::max(t.work, row_time * t.exchange);
    };
    sum.serial += serial(after) / serial(before) / o.num_layers;
    sum.overlapped += overlapped(after) / overlapped(before) / o.num_layers;
    sum.auto_rows += before.exchange / (kSourceRows * (ranks - 1)) / o.num_layers;
    sum.near_rows += after.exchange / (kSourceRows * (ranks - 1)) / o.num_layers;
  }
  return sum;
}

}  // namespace

int bench_balance_by_source(const BenchBalanceOptions& o) {
  if (!o.json)
    fmt::print(
        "{} experts, {} layers, {} rows a rank, {} experts a row; step time with experts near "
        "their rows / of auto; travel = rows sent to a rank / rows\n"
        "{:>4} {:>5} {:>4} {:>9} {:>8} {:>10} {:>12} {:>12}\n",
        o.num_experts, o.num_layers, kSourceRows, kChosenExperts, "zipf", "ranks", "own",
        "exchange", "serial", "overlapped", "travel: auto", "near");
  for (const double exponent : kSkews)
    for (const int ranks : kSourceRanks) {
      if (ranks > o.num_experts || o.num_experts % ranks != 0) continue;
      for (const double own : kOwnShares)
        for (const double exchange_share : kExchangeShares) {
          const SourceFigures f = measure_sources(o, exponent, ranks, own, exchange_share);
          if (o.json) {
            const nlohmann::ordered_json line = {{"zipf", exponent},
                                                 {"ranks", ranks},
                                                 {"own", own},
                                                 {"exchange", exchange_share},
                                                 {"serial", f.serial},
                                                 {"overlapped", f.overlapped},
                                                 {"travel_auto", f.auto_rows},
                                                 {"travel_near", f.near_rows}};
            fmt::print("{}\n", line.dump());
          } else {
            fmt::print("{:4.1f} {:5} {:4.2f} {:9.2f} {:8.3f} {:10.3f} {:12.3f} {:12.3f}\n",
                       exponent, ranks, own, exchange_share, f.serial, f.overlapped, f.auto_rows,
                       f.near_rows);
          }
        }
    }
  return 0;
}

}  // namespace hocket
