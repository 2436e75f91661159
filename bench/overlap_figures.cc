#include "bench/overlap_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/quantile.h"

namespace hocket {
namespace {

// Goals, in the order of docs/performance.md.
constexpr double kBestShare = 0.99, kAllShare = 0.98, kEta = 0.95, kEtaUpTo = 0.8;
constexpr double kOverTax = 1.05, kTaxFrom = 0.25, kTaxUpTo = 1, kTaxGbit = 1;
constexpr double kForcedShare = 0.98, kSerialShare = 0.99;
// The goal of eta for answers at 1 Gbit/s, and the rows of a rank that it holds for.
constexpr double kRealEta = 0.7;
constexpr int kEtaFromRows = 8, kEtaUpToRows = 64;
// The number of standard errors by which a value may be off its goal.
constexpr double kErrors = 2;
// The tax of these rows at 1 Gbit/s as a share of compute, as docs/results.md recorded it on 22
// November 2026 ("Orders at 1 Gbit/s"), and the part of it that may be left.
constexpr double kTaxLeft = 0.5;
struct RecordedTax {
  int rows;
  double of_compute;
};
constexpr RecordedTax kRecordedTaxes[] = {
    {8, 3.4 / 8.0}, {16, 4.2 / 12.2}, {32, 9.3 / 17.4}, {64, 27.2 / 34.3}};
constexpr double kBeaten = 0.20, kAhead = 0.02;
// The orders that open engines run.
constexpr std::array<std::string_view, 5> kFixed = {
    "sglang-prefill", "sglang-decode", "lightllm-prefill", "lightllm-decode", "four-phase"};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

struct Piece {
  TimePoint begin, end;
};

// Returns the union of the pieces as disjoint pieces, in order of time.
std::vector<Piece> united(std::vector<Piece> pieces) {
  std::ranges::sort(pieces, {}, &Piece::begin);
  std::vector<Piece> all;
  for (const Piece& piece : pieces) {
    if (piece.end <= piece.begin) continue;
    if (all.empty() || all.back().end < piece.begin)
      all.push_back(piece);
    else
      all.back().end = std::max(all.back().end, piece.end);
  }
  return all;
}

Duration length_of(std::span<const Piece> pieces) {
  Duration sum{};
  for (const Piece& piece : pieces) sum += piece.end - piece.begin;
  return sum;
}

// Returns the time that lies in both unions.
Duration common(std::span<const Piece> a, std::span<const Piece> b) {
  Duration sum{};
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const TimePoint begin = std::max(a[i].begin, b[j].begin), end = std::min(a[i].end, b[j].end);
    if (begin < end) sum += end - begin;
    (a[i].end < b[j].end ? i : j) += 1;
  }
  return sum;
}

bool is_answer(std::string_view order) {
  return order == "auto" || order == kBestOfAll;
}

}  // namespace

OverlapFigures figures_of(const StepTimings& r) {
  OverlapFigures f;
  f.eta = ratio(r.serial_us - r.overlapped_us, std::min(r.compute_us, r.exchange_us));
  f.over_ideal = ratio(r.overlapped_us, std::max(r.compute_us, r.exchange_us));
  f.loss_split_us = r.split_us - r.compute_us;
  f.loss_interference_us = r.traffic_us - r.split_us;
  f.loss_exposed_us = r.overlapped_us - r.traffic_us - r.waiting_us;
  f.loss_waiting_us = r.waiting_us;
  return f;
}

double coverage_of(std::span<const LedgerSpan> spans) {
  std::vector<Piece> wire, busy, waits;
  for (const LedgerSpan& span : spans) {
    const Piece piece{span.begin, span.end};
    switch (span.kind) {
      case LedgerSpan::Kind::push:  // handing bytes over is part of an operation's span
        break;
      case LedgerSpan::Kind::wire:
        wire.push_back(piece);
        break;
      case LedgerSpan::Kind::op:
      case LedgerSpan::Kind::other:
        busy.push_back(piece);
        break;
      case LedgerSpan::Kind::exposed:
      case LedgerSpan::Kind::waiting:
        waits.push_back(piece);
        break;
    }
  }
  wire = united(std::move(wire)), busy = united(std::move(busy)), waits = united(std::move(waits));
  const Duration all = length_of(wire);
  if (all.count() == 0) return 0;
  // An operation's span holds its waits, which are not work.
  std::vector<Piece> covered;
  for (const Piece& w : wire)
    for (const Piece& b : busy) {
      const Piece both{std::max(w.begin, b.begin), std::min(w.end, b.end)};
      if (both.begin < both.end) covered.push_back(both);
    }
  return to_seconds(length_of(covered) - common(covered, waits)) / to_seconds(all);
}

const OverlapResult* PlayedPoint::find(std::string_view order) const {
  const auto row = std::ranges::find(rows_of_orders, order, &OverlapResult::order);
  return row == rows_of_orders.end() ? nullptr : &*row;
}

namespace {

// Returns the relative standard error of the rounds' median, from the width of their middle half.
double median_error(const OverlapResult& row) {
  constexpr double kDeviationsOfMiddleHalf = 1.349, kMedianOverMean = 1.2533;
  if (row.rounds_us.size() < 2) return 0;
  const double deviation = row.spread_us / kDeviationsOfMiddleHalf;
  return ratio(kMedianOverMean * deviation, row.runs.overlapped_us) /
         std::sqrt(static_cast<double>(row.rounds_us.size()));
}

double median_of_every_second(const std::vector<double>& rounds_us, size_t first) {
  std::vector<double> some;
  for (size_t i = first; i < rounds_us.size(); i += 2) some.push_back(rounds_us[i]);
  return quantile(some, 0.5);
}

// Returns the row other than auto with the least time_us(row); auto if there is no other; null if
// there is neither.
template <class Time>
const OverlapResult* fastest_forced(const PlayedPoint& point, Time&& time_us) {
  const OverlapResult* best = nullptr;
  for (const OverlapResult& row : point.rows_of_orders)
    if (!is_answer(row.order) && (best == nullptr || time_us(row) < time_us(*best))) best = &row;
  return best != nullptr ? best : point.find("auto");
}

}  // namespace

double PlayedPoint::auto_over_best() const {
  const OverlapResult* chosen = find("auto");
  if (chosen == nullptr) return 0;
  double best_us = 0;
  if (chosen->rounds_us.size() < 2) {
    best_us = best_forced()->runs.overlapped_us;
  } else {
    for (const size_t first : {0u, 1u}) {
      const OverlapResult* best = fastest_forced(*this, [&](const OverlapResult& row) {
        return median_of_every_second(row.rounds_us, first);
      });
      best_us += median_of_every_second(best->rounds_us, 1 - first) / 2;
    }
  }
  return ratio(best_us, chosen->runs.overlapped_us);
}

double PlayedPoint::auto_over_all() const {
  const OverlapResult *chosen = find("auto"), *all = find(kBestOfAll);
  if (chosen == nullptr || all == nullptr) return 0;
  return ratio(all->runs.overlapped_us, chosen->runs.overlapped_us);
}

const OverlapResult* PlayedPoint::best_forced() const {
  return fastest_forced(*this, [](const OverlapResult& row) { return row.runs.overlapped_us; });
}

double PlayedPoint::error_against(std::string_view order) const {
  const OverlapResult* chosen = find("auto");
  const OverlapResult* other = find(order);
  if (chosen == nullptr || other == nullptr) return 0;
  return std::hypot(median_error(*chosen), median_error(*other));
}

double PlayedPoint::auto_over_serial() const {
  const OverlapResult* chosen = find("auto");
  const OverlapResult* serial = find("serial");
  if (chosen == nullptr || serial == nullptr) return 0;
  return ratio(serial->runs.overlapped_us, chosen->runs.overlapped_us);
}

namespace {

// Collects the goals that a point reaches or misses.
struct Verdicts {
  std::vector<OverlapVerdict> all;
  void at_least(std::string goal, double value, double bound, double error = 0) {
    all.push_back({std::move(goal), value, value + kErrors * error >= bound, error});
  }
  void at_most(std::string goal, double value, double bound, double error = 0) {
    all.push_back({std::move(goal), value, value - kErrors * error <= bound, error});
  }
};

// Returns one standard error of eta, from the spread of the rounds.
double error_of_eta(const PlayedPoint& point, const OverlapResult& chosen) {
  const OverlapResult* serial = point.find("serial");
  if (serial == nullptr) return 0;
  const auto error_us = [](const OverlapResult& row) {
    return median_error(row) * row.runs.overlapped_us;
  };
  return ratio(std::hypot(error_us(*serial), error_us(chosen)),
               std::min(chosen.runs.compute_us, chosen.runs.exchange_us));
}

// Adds the goals of answers between hosts at 1 Gbit/s.
void add_answers_at_1_gbit(const PlayedPoint& point, const OverlapResult& chosen,
                           Verdicts& verdicts) {
  if (!point.is_between_hosts || point.phase != Phase::decode || point.link_gbit != kTaxGbit)
    return;
  if (point.rows >= kEtaFromRows && point.rows <= kEtaUpToRows)
    verdicts.at_least("eta >= 0.7", figures_of(chosen.runs).eta, kRealEta,
                      error_of_eta(point, chosen));
  const auto* recorded = std::ranges::find(kRecordedTaxes, point.rows, &RecordedTax::rows);
  if (recorded == std::end(kRecordedTaxes)) return;
  const double share = ratio(point.tax_us, chosen.runs.compute_us);
  verdicts.at_most("tax/recorded tax <= 0.5", share / recorded->of_compute, kTaxLeft);
}

}  // namespace

std::vector<OverlapVerdict> verdicts_of(const PlayedPoint& point) {
  Verdicts verdicts;
  const OverlapResult* chosen = point.find("auto");
  if (chosen == nullptr) return {};
  const OverlapFigures f = figures_of(chosen->runs);
  const double share = ratio(chosen->runs.exchange_us, chosen->runs.compute_us);
  if (point.clock == "virtual") {
    verdicts.at_least("auto/best >= 0.99", point.auto_over_best(), kBestShare);
    if (point.auto_over_all() > 0)
      verdicts.at_least("auto/all >= 0.98", point.auto_over_all(), kAllShare);
    if (point.free_split && share <= kEtaUpTo && point.rows > 1)
      verdicts.at_least("eta >= 0.95", f.eta, kEta);
    return std::move(verdicts.all);
  }
  verdicts.at_least("auto/best forced >= 0.98", point.auto_over_best(), kForcedShare,
                    point.error_against(point.best_forced()->order));
  verdicts.at_least("auto/serial >= 0.99", point.auto_over_serial(), kSerialShare,
                    point.error_against("serial"));
  if (point.link_gbit == kTaxGbit && share >= kTaxFrom && share <= kTaxUpTo) {
    const double limit = std::max(chosen->runs.exchange_us, chosen->runs.compute_us + point.tax_us);
    const double over = ratio(chosen->runs.overlapped_us, limit);
    verdicts.at_most("step <= 1.05 max(exchange, compute + tax)", over, kOverTax,
                     over * median_error(*chosen));
  }
  add_answers_at_1_gbit(point, *chosen, verdicts);
  return std::move(verdicts.all);
}

bool misses_virtual_goal(std::span<const PlayedPoint> points) {
  return std::ranges::any_of(points, [](const PlayedPoint& point) {
    return point.clock == "virtual" &&
           !std::ranges::all_of(verdicts_of(point), &OverlapVerdict::is_met);
  });
}

std::vector<OrderVerdict> order_verdicts_of(std::span<const PlayedPoint> points) {
  std::vector<OrderVerdict> all;
  for (const std::string_view name : kFixed) {
    OrderVerdict verdict{.order = std::string(name)};
    bool was_played = false;
    for (const PlayedPoint& point : points) {
      const OverlapResult* fixed = point.find(name);
      const OverlapResult* chosen = point.find("auto");
      if (fixed == nullptr || chosen == nullptr) continue;
      was_played = true;
      const double gain = ratio(fixed->runs.overlapped_us, chosen->runs.overlapped_us) - 1;
      verdict.max_gain = std::max(verdict.max_gain, gain);
      verdict.max_loss = std::max(verdict.max_loss, -gain);
    }
    if (!was_played) continue;
    verdict.is_met = verdict.max_gain >= kBeaten && verdict.max_loss <= kAhead;
    all.push_back(std::move(verdict));
  }
  return all;
}

}  // namespace hocket
