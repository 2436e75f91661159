// The arithmetic of `hocket bench overlap`: from six measured runs of one step it computes the part
// of the exchange that was hidden, and the causes of the rest. Pure functions.
//
//   hideable      H     = min(compute, exchange)
//   net hidden    eta   = (serial - overlapped) / H            1: ideal; negative: it costs
//   coverage      kappa = |on the wire while computing| / |on the wire|, from the ledger's spans
//   losses        split = split - compute, interference = traffic - split,
//                 exposed = overlapped - traffic - waiting
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/overlap/ledger.h"

namespace hocket {

// Times of the same step, played in six ways, in microseconds.
struct StepTimings {
  double serial_us = 0;      // nothing is computed while rows travel
  double compute_us = 0;     // the whole batch; rows of other ranks are there at once
  double split_us = 0;       // the same, with the batch cut as in the overlapped run
  double traffic_us = 0;     // the same as split, while as many useless bytes travel
  double exchange_us = 0;    // only the messages are sent, nothing is computed
  double overlapped_us = 0;  // the plan itself
  double waiting_us = 0;     // the part of overlapped_us spent waiting for slower ranks
};

struct OverlapFigures {
  double eta = 0;
  double over_ideal = 0;  // overlapped / max(compute, exchange)
  double loss_split_us = 0, loss_interference_us = 0, loss_exposed_us = 0, loss_waiting_us = 0;
};
OverlapFigures figures_of(const StepTimings& runs);

// Returns kappa of one rank's step from its spans; 0 if nothing was on the wire.
double coverage_of(std::span<const LedgerSpan> spans);

// The row of `bench overlap --search`: the best of all orders. It competes with no other row.
inline constexpr std::string_view kBestOfAll = "best of all orders";

// A point is a phase, a number of rows and a link; each order played there is a row.
struct OverlapResult {
  std::string order;  // its name; "auto", "best", "best single-batch" are answers of a search
  std::string plan;   // the plan in words
  StepTimings runs;
  double kappa = 0;
  double spread_us = 0;           // width of the middle half of rounds_us; 0 in virtual time
  std::vector<double> rounds_us;  // overlapped time of each round; empty in virtual time
};

struct PlayedPoint {
  std::string clock;  // virtual, real
  std::string shape;
  Phase phase = Phase::decode;
  int ranks = 2, rows = 0;
  double link_gbit = 0;
  bool is_between_hosts = false;               // ranks are processes that an address joins
  bool free_split = false;                     // the shape loses no time when a batch is halved
  double lower_bound_us = 0;                   // no order of one or two halves beats it; 0: unknown
  double tax_us = 0;                           // core time to move the bytes; 0 in virtual time
  double idle_share = 0;                       // share of a step that the ledger cannot explain
  double ledger_share = 0, planner_share = 0;  // share of steps spent on booking, on planning
  std::string why;                             // the search's reason for its choice
  std::string found_order;                     // YAML of kBestOfAll, if that order has no name
  std::map<std::string, int> played_by_auto;   // real: number of rounds by the plan of auto
  std::vector<OverlapResult> rows_of_orders;   // with "serial", and with "auto" if it was played

  const OverlapResult* find(std::string_view order) const;
  // Both return another row's time over that of auto: 1.1 means that auto is 10 % faster.
  // auto_over_best() compares with the fastest other row. With rounds, the winner of even rounds is
  // timed on odd ones and vice versa (cross-validation), because the minimum of noisy medians is
  // too low.
  double auto_over_best() const;
  double auto_over_all() const;  // compares with kBestOfAll; 0 without --search
  double auto_over_serial() const;
  // Returns one standard error of the ratio to `order`, relative to it, from the spread of the
  // rounds; 0 in virtual time.
  double error_against(std::string_view order) const;
  // Returns the fastest row other than auto by the medians of all rounds; null without rows.
  const OverlapResult* best_forced() const;
};

// One goal and the value that a point reached. verdicts_of() leaves out goals that do not apply.
struct OverlapVerdict {
  std::string goal;  // "auto/best >= 0.99"
  double value = 0;
  bool is_met = false;  // it is not missed by more than two standard errors
  double error = 0;     // one standard error of the value; 0: unknown
};
std::vector<OverlapVerdict> verdicts_of(const PlayedPoint& point);
// Returns true if a point of virtual time, which is the same on every machine, misses a goal.
bool misses_virtual_goal(std::span<const PlayedPoint> points);

// A fixed order compared with auto over all points: the most that auto gains and loses.
struct OrderVerdict {
  std::string order;
  double max_gain = 0, max_loss = 0;  // shares: a gain of 0.25 means that auto is 25 % faster
  bool is_met = false;                // auto wins 20 % somewhere, loses over 2 % nowhere
};
std::vector<OrderVerdict> order_verdicts_of(std::span<const PlayedPoint> points);

}  // namespace hocket
