// The arithmetic of `hocket bench overlap`: from six measured runs of one step to how much of the
// exchange was hidden and where the rest went. Pure.
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

// Microseconds of the same step, played six ways. `waiting`: of the overlapped one, for slower
// ranks.
struct SixRuns {
  double serial_us = 0;    // nothing computed while rows travel
  double compute_us = 0;   // whole, its rows are there at once
  double split_us = 0;     // the same, cut as the overlapped one
  double traffic_us = 0;   // and as many bytes of no use under way
  double exchange_us = 0;  // messages alone
  double overlapped_us = 0;
  double waiting_us = 0;
};

struct OverlapFigures {
  double eta = 0;
  double over_ideal = 0;  // overlapped / max(compute, exchange)
  double loss_split_us = 0, loss_interference_us = 0, loss_exposed_us = 0, loss_waiting_us = 0;
};
OverlapFigures figures_of(const SixRuns& runs);

// Of one step's spans of one rank; 0 where nothing was on the wire.
double coverage_of(std::span<const LedgerSpan> spans);

// A point is a phase, a number of rows and a link; each order played there is a row.
struct OverlapRow {
  std::string order;  // its name; "auto", "best", "best single-batch" are answers of a search
  std::string plan;   // in words
  SixRuns runs;
  double kappa = 0;
  double spread_us = 0;           // of the middle half of the rounds; 0 in virtual time
  std::vector<double> rounds_us;  // overlapped, of each round; empty in virtual time
};

struct PlayedPoint {
  std::string clock;  // virtual, real
  std::string shape;
  Phase phase = Phase::decode;
  int ranks = 2, rows = 0;
  double link_gbit = 0;
  bool free_split = false;                     // stage times that lose nothing when they are halved
  double lower_bound_us = 0;                   // of orders of whole or halved batches; 0: unknown
  double three_halves_us = 0;                  // three equal ones in turn, predicted; 0: unknown
  double tax_us = 0;                           // of cores that move the bytes; 0 in virtual time
  double idle_share = 0;                       // of steps: what the ledger could not account for
  double ledger_share = 0, planner_share = 0;  // of steps: what booking and planning them takes
  std::string why;                             // what the search says of its choice
  std::map<std::string, int> played_by_auto;   // real: in how many rounds it played which plan
  std::vector<OverlapRow> rows_of_orders;  // "serial" is one; "auto" another, where it was played

  const OverlapRow* find(std::string_view order) const;
  // Times of others over that of auto: 1.1 is auto 10 % faster. Over the fastest of the others:
  // with rounds, the one that was it in every second round, as timed in those between, and the
  // other way round; for the least of a dozen noisy medians is less than any of them takes.
  double auto_over_best() const;
  double auto_over_serial() const;
  // One standard error of such a ratio to `order`, by how much the rounds differ; 0 in virtual
  // time.
  double error_against(std::string_view order) const;
  // Whose time auto_over_best() is, if all rounds count; null without rows.
  const OverlapRow* best_forced() const;
};

// What a point promises, and whether it holds. Empty where the goal says nothing of the point.
struct OverlapVerdict {
  std::string goal;  // "auto/best >= 0.99"
  double value = 0;
  bool is_met = false;
  double error = 0;  // one standard error of the value, where rounds tell it
};
std::vector<OverlapVerdict> verdicts_of(const PlayedPoint& point);

// Each fixed order against auto, over all points: the most that auto gains and loses.
struct OrderVerdict {
  std::string order;
  double most_gain = 0, most_loss = 0;  // of auto, as shares: 0.25 is 25 % faster
  bool is_met = false;                  // beaten by 20 % somewhere, ahead by 2 % nowhere
};
std::vector<OrderVerdict> order_verdicts_of(std::span<const PlayedPoint> points);

}  // namespace hocket
