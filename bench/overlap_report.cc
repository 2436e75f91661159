#include "bench/overlap_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace hocket {
namespace {

double step_of(const OverlapResult& row) {
  return row.runs.overlapped_us;
}

}  // namespace

void OverlapReport::add(PlayedPoint point) {
  if (json_)
    print_json(point);
  else
    print(point);
  std::fflush(stdout);
  points_.push_back(std::move(point));
}

void OverlapReport::print(const PlayedPoint& p) const {
  const OverlapResult* serial = p.find("serial");
  const StepTimings runs = serial != nullptr ? serial->runs : StepTimings{};
  fmt::print(
      "\n{} {} {:g} Gbit/s, {} {} rows, {} ranks | compute {:.0f} us, exchange {:.0f} us ({:.2f})",
      p.clock, p.shape, p.link_gbit, phase_name(p.phase), p.rows, p.ranks, runs.compute_us,
      runs.exchange_us, runs.compute_us > 0 ? runs.exchange_us / runs.compute_us : 0);
  if (p.clock == "real")
    fmt::print(", tax {:.0f} us, not accounted for {:.2f} %, ledger {:.3f} %, planner {:.3f} %",
               p.tax_us, 100 * p.idle_share, 100 * p.ledger_share, 100 * p.planner_share);
  if (!p.why.empty()) fmt::print("\n  auto: {}", p.why);
  for (const auto& [plan, rounds] : p.played_by_auto)
    fmt::print("\n  auto played {} in {} rounds", plan, rounds);
  fmt::print("\n  {:<28} {:>10} {:>7} {:>6} {:>6} {:>7} | {:>8} {:>8} {:>8} {:>8}\n", "order",
             "step us", "serial/", "eta", "kappa", "/bound", "split", "interf", "exposed",
             "waiting");
  for (const OverlapResult& row : p.rows_of_orders) {
    const OverlapFigures f = figures_of(row.runs);
    fmt::print(
        "  {:<28} {:>10.1f} {:>7.3f} {:>6.2f} {:>6.2f} {:>7.3f} | {:>8.0f} {:>8.0f} {:>8.0f} "
        "{:>8.0f}",
        row.order, step_of(row), row.runs.serial_us / step_of(row), f.eta, row.kappa,
        p.lower_bound_us > 0 ? step_of(row) / p.lower_bound_us : 0, f.loss_split_us,
        f.loss_interference_us, f.loss_exposed_us, f.loss_waiting_us);
    if (row.spread_us > 0) fmt::print(" | +-{:.1f} %", 50 * row.spread_us / step_of(row));
    if (row.plan != row.order) fmt::print(" | {}", row.plan);
    fmt::print("\n");
  }
  if (!p.found_order.empty())
    fmt::print("  {}, for --overlap-plan:\n{}", kBestOfAll, p.found_order);
  for (const OverlapVerdict& v : verdicts_of(p)) {
    fmt::print("  {} {} ({:.3f}", v.is_met ? "ok  " : "MISS", v.goal, v.value);
    if (v.error > 0) fmt::print(" +- {:.3f}", v.error);
    fmt::print(")\n");
  }
}

void OverlapReport::print_json(const PlayedPoint& p) const {
  for (const OverlapResult& row : p.rows_of_orders) {
    const OverlapFigures f = figures_of(row.runs);
    nlohmann::ordered_json line = {
        {"clock", p.clock},
        {"shape", p.shape},
        {"ranks", p.ranks},
        {"phase", phase_name(p.phase)},
        {"rows", p.rows},
        {"link_gbit", p.link_gbit},
        {"order", row.order},
        {"plan", row.plan},
        {"step_us", step_of(row)},
        {"eta", f.eta},
        {"kappa", row.kappa},
        {"lower_bound_ratio", p.lower_bound_us > 0 ? step_of(row) / p.lower_bound_us : 0},
        {"auto_over_best", p.auto_over_best()},
        {"auto_over_serial", p.auto_over_serial()},
        {"serial_us", row.runs.serial_us},
        {"compute_us", row.runs.compute_us},
        {"exchange_us", row.runs.exchange_us},
        {"loss_split_us", f.loss_split_us},
        {"loss_interference_us", f.loss_interference_us},
        {"loss_exposed_us", f.loss_exposed_us},
        {"loss_waiting_us", f.loss_waiting_us},
        {"over_ideal", f.over_ideal},
        {"tax_us", p.tax_us},
        {"idle_share", p.idle_share},
        {"ledger_share", p.ledger_share},
        {"planner_share", p.planner_share},
        {"spread_us", row.spread_us}};
    if (row.order == kBestOfAll && !p.found_order.empty()) line["found_order"] = p.found_order;
    if (row.order == "auto") {
      line["why"] = p.why;
      if (!p.played_by_auto.empty()) line["played"] = p.played_by_auto;
      if (p.auto_over_all() > 0) line["auto_over_all"] = p.auto_over_all();
      for (const OverlapVerdict& v : verdicts_of(p))
        line["goals"].push_back(
            {{"goal", v.goal}, {"value", v.value}, {"met", v.is_met}, {"error", v.error}});
    }
    fmt::print("{}\n", line.dump());
  }
}

void OverlapReport::print_goals() const {
  if (json_ || points_.empty()) return;
  struct Count {
    int met = 0, all = 0;
    double worst = 0;
    const PlayedPoint* at = nullptr;
  };
  for (const std::string_view clock : {"virtual", "real"}) {
    std::map<std::string, Count> goals;
    std::vector<PlayedPoint> mine;
    for (const PlayedPoint& point : points_) {
      if (point.clock != clock) continue;
      mine.push_back(point);
      for (const OverlapVerdict& v : verdicts_of(point)) {
        Count& count = goals[v.goal];
        const bool is_limit = v.goal.find("<=") != std::string::npos;
        if (count.all++ == 0 || (is_limit ? v.value > count.worst : v.value < count.worst))
          count.worst = v.value, count.at = &point;
        count.met += v.is_met ? 1 : 0;
      }
    }
    if (mine.empty()) continue;
    fmt::print("\n{} time, {} points\n", clock, mine.size());
    for (const auto& [goal, count] : goals)
      fmt::print("  {} {}: {} of {}, worst {:.3f} at {} {} {} rows, {:g} Gbit/s, {} ranks\n",
                 count.met == count.all ? "ok  " : "MISS", goal, count.met, count.all, count.worst,
                 count.at->shape, phase_name(count.at->phase), count.at->rows, count.at->link_gbit,
                 count.at->ranks);
    for (const OrderVerdict& v : order_verdicts_of(mine))
      fmt::print("  {} auto against {}: at most {:.0f} % faster, {:.1f} % slower\n",
                 v.is_met ? "ok  " : "MISS", v.order, 100 * v.max_gain, 100 * v.max_loss);
  }
}

}  // namespace hocket
