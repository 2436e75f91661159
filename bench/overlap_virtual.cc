#include "bench/overlap_virtual.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "base/check.h"
#include "bench/wide_search.h"
#include "compute/comm/loopback.h"
#include "compute/comm/transport_clock_testing.h"
#include "compute/overlap/explain.h"
#include "compute/overlap/order_yaml.h"
#include "compute/overlap/stage_player_testing.h"

namespace hocket {
namespace {

// Length of the longest transfer's message; the link's modelled rate is set to match. Transfers are
// whole bytes, so times are exact to 2^-18 of the longest transfer.
constexpr double kMaxTransferBytes = 256 << 10;

// Spends a rank's stage times in virtual time and books its operations in the ledger.
class BookedWork final : public StageWork {
 public:
  BookedWork(LoopbackHub& hub, int rank, Ledger& ledger)
      : hub_(hub), rank_(rank), ledger_(ledger) {}
  void spend(Duration time) override { hub_.spend(rank_, time); }
  void begin_op(int layer, Op op, int half) override { ledger_.begin_op(layer, op, half); }
  void end_op() override { ledger_.end_op(); }

 private:
  LoopbackHub& hub_;
  const int rank_;
  Ledger& ledger_;
};

struct PlayedStep {
  double step_us = 0, waiting_us = 0, kappa = 0;
};

class VirtualBench {
 public:
  explicit VirtualBench(const VirtualPoint& point)
      : point_(point),
        layers_(point.shape.layers()),
        model_(point.shape, point.ranks, link()),
        bucket_(ShapeTimes::bucket_of(point.phase, point.rows)),
        whole_(model_.at(bucket_)) {}

  Result<PlayedPoint> run();

 private:
  OverlapLink link() const {
    OverlapLink link{.gbit = point_.link_gbit};
    if (point_.shape.free_split) link.latency_us = 0;
    return link;
  }
  const Order& order_of(const Plan& plan) const { return orders_.at(plan.order); }
  std::vector<StageTimes> times_of_halves(const Plan& plan) const;
  PlanTimes times_of(const Plan& plan, const std::vector<StageTimes>& halves) const {
    return {.order = order_of(plan), .halves = halves, .grain = plan.grain()};
  }
  // Returns false for two halves of one row, and for orders that only move shared experts if there
  // are none.
  bool can_play(const Plan& plan) const {
    if (order_of(plan).num_halves == 2) return point_.rows > 1;
    return plan.order == 0 || layers_.has_shared;
  }
  double exchange_us() const;
  Result<PlayedStep> play(const Plan& plan) const;
  Result<PlayedStep> play_rank(const PlanTimes& times, LoopbackHub& hub, int rank,
                               double longest_us) const;
  Result<void> add(std::string name, const Plan& plan, PlayedPoint& to) const;

  const VirtualPoint& point_;
  // With found orders behind the built-in ones, which have the same numbers in both tables.
  const OrderTable& orders_ = all_orders();
  const LayerCounts layers_;
  const ShapeTimes model_;
  const Bucket bucket_;
  const StageTimes whole_;
};

// Returns the stage times of each half, as the search computes them.
std::vector<StageTimes> VirtualBench::times_of_halves(const Plan& plan) const {
  if (order_of(plan).num_halves == 1) return {whole_};
  const auto halves = halves_of(bucket_, plan.share, 1);
  HOCKET_CHECK(halves.has_value());
  return {model_.at((*halves)[0]), model_.at((*halves)[1])};
}

double VirtualBench::exchange_us() const {
  StageTimes wire = whole_;
  wire.compute = {};
  return predict({.order = serial_order(), .halves = std::span(&wire, 1)}, layers_).step_us;
}

Result<PlayedStep> VirtualBench::play_rank(const PlanTimes& times, LoopbackHub& hub, int rank,
                                           double longest_us) const {
  const std::unique_ptr<Transport> end = hub.join(rank);
  const TransportClock clock(*end);
  Ledger ledger({.num_layers = layers_.num_layers(),
                 .num_ranks = point_.ranks,
                 .exact_arrival = true,
                 .kinds = layers_.kinds},
                clock);
  ledger.keep_spans(rank == 0);
  BookedWork work(hub, rank, ledger);
  HOCKET_TRY(const auto player,
             StagePlayer::create(*end, {.layers = layers_,
                                        .bytes_per_s = kMaxTransferBytes / longest_us * 1e6,
                                        .longest_busy_us = longest_us,
                                        .watch = &ledger}));
  ledger.begin_step(hub.now());
  ledger.begin_pass(1, {}, bucket_, false);
  HOCKET_TRY_VOID(player->play(times, work));
  const StepAccount& account = ledger.end_step(hub.now());
  return PlayedStep{.step_us = to_us(account.took),
                    .waiting_us = to_us(account.waiting),
                    .kappa = coverage_of(ledger.spans())};
}

// Plays a plan on all ranks. Returns the slowest rank's time, the mean of waiting, and rank 0's
// kappa.
Result<PlayedStep> VirtualBench::play(const Plan& plan) const {
  const std::vector<StageTimes> halves = times_of_halves(plan);
  double longest_us = 0;
  for (const StageTimes& half : halves)
    longest_us = std::max(
        {longest_us, half.dispatch.busy_in(plan.grain()), half.combine.busy_in(plan.grain())});
  LoopbackHub hub(point_.ranks,
                  {.bytes_per_s = kMaxTransferBytes / longest_us * 1e6,
                   .latency = from_seconds(whole_.dispatch.latency_us * 1e-6)},
                  LoopbackHub::Time::virtual_time);
  std::vector<Result<PlayedStep>> played(static_cast<size_t>(point_.ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < point_.ranks; ++rank)
      threads.emplace_back([&, rank] {
        played[static_cast<size_t>(rank)] =
            play_rank(times_of(plan, halves), hub, rank, longest_us);
      });
  }
  PlayedStep all;
  for (const Result<PlayedStep>& one : played) {
    if (!one) return one;
    all.step_us = std::max(all.step_us, one->step_us);
    all.waiting_us += one->waiting_us / point_.ranks;
  }
  all.kappa = played[0]->kappa;
  return all;
}

Result<void> VirtualBench::add(std::string name, const Plan& plan, PlayedPoint& to) const {
  // A plan that was played already is not played again: virtual time would give the same.
  for (const OverlapResult& row : to.rows_of_orders) {
    if (row.plan != describe(plan, orders_)) continue;
    OverlapResult again = row;
    again.order = std::move(name);
    to.rows_of_orders.push_back(std::move(again));
    return {};
  }
  HOCKET_TRY(const PlayedStep played, play(plan));
  const std::vector<StageTimes> halves = times_of_halves(plan);
  StepTimings runs;
  runs.serial_us =
      to.rows_of_orders.empty() ? played.step_us : to.rows_of_orders[0].runs.overlapped_us;
  runs.compute_us =
      predict({.order = serial_order(), .halves = std::span(&whole_, 1)}, layers_).compute_us;
  runs.split_us = predict(times_of(plan, halves), layers_).compute_us;
  runs.traffic_us = runs.split_us;  // the cores of virtual time move no bytes
  runs.exchange_us = exchange_us();
  runs.overlapped_us = played.step_us, runs.waiting_us = played.waiting_us;
  to.rows_of_orders.push_back({.order = std::move(name),
                               .plan = describe(plan, orders_),
                               .runs = runs,
                               .kappa = played.kappa});
  return {};
}

Result<PlayedPoint> VirtualBench::run() {
  PlayedPoint out{.clock = "virtual",
                  .shape = std::string(point_.shape.name),
                  .phase = point_.phase,
                  .ranks = point_.ranks,
                  .rows = point_.rows,
                  .link_gbit = point_.link_gbit,
                  .free_split = point_.shape.free_split};
  const SearchInput named{
      .model = model_, .orders = OrderTable::builtin(), .layers = layers_, .bucket = bucket_};
  const SearchInput all{.model = model_, .orders = orders_, .layers = layers_, .bucket = bucket_};
  for (int order = 0; order < named.orders.size(); ++order)
    if (can_play({.order = order})) {
      HOCKET_TRY_VOID(add(orders_.at(order).name, {.order = order}, out));
    }
  const SearchResult answer = search(named);
  const Candidate& single = answer.best_of[static_cast<size_t>(PlanKind::single_batch)];
  if (single.step_us > 0) HOCKET_TRY_VOID(add("best single-batch", single.plan, out));
  HOCKET_TRY_VOID(add("best", best_of_all(named).plan, out));
  if (point_.search) {
    const Plan best = best_of_all(all).plan;
    HOCKET_TRY_VOID(add(std::string(kBestOfAll), best, out));
    if (best.order >= orders_.user_begin()) out.found_order = to_yaml(order_of(best));
  }
  HOCKET_TRY_VOID(add("auto", answer.best().plan, out));
  out.lower_bound_us = answer.lower_bound_us;
  out.why = explain(answer);
  return out;
}

}  // namespace

Result<PlayedPoint> play_virtual(const VirtualPoint& point) {
  return VirtualBench(point).run();
}

}  // namespace hocket
