#include "apps/plan_overlap.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/choose.h"
#include "compute/overlap/tuning.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLinks[] = {0.2, 1, 2.5, 10, 25, 100, 400};  // Gbit/s
constexpr double kLatencyUs = 20;
constexpr int kMaxKeys = 2048;  // keys that a decode row attends to, at most
// With several links, only the points of these numbers of rows are explained.
constexpr int kShownPrefill = 2048, kShownDecode = 64;

// Returns "-" for the plan none, else "one" or "two" halves, and behind a slash the parts and the
// waves of each, if there are several: "two/4", "one/2x4", "one/x2".
std::string short_name(const Plan& plan) {
  const PlanKind kind = kind_of(plan, OrderTable::builtin());
  if (kind == PlanKind::none) return "-";
  const std::string_view name = kind == PlanKind::two_batch ? "two" : "one";
  const std::string parts = plan.parts > 1 ? std::to_string(plan.parts) : "";
  if (plan.waves > 1) return fmt::format("{}/{}x{}", name, parts, plan.waves);
  return plan.parts > 1 ? fmt::format("{}/{}", name, plan.parts) : std::string(name);
}

std::string cell(const OverlapPoint& point) {
  const long percent = std::lround(100 * point.gain());
  return fmt::format("{} {}%", short_name(point.plan), percent);
}

std::string link_name(const StageLink& link) {
  return fmt::format("{:g} Gbit/s", link.gbit_per_s);
}

// Prints `text` in lines of at most 92 characters, broken at spaces and indented by four.
void print_wrapped(std::string text) {
  constexpr size_t kColumns = 92;
  while (!text.empty()) {
    const size_t end = text.size() <= kColumns ? text.size() : text.rfind(' ', kColumns);
    fmt::print("    {}\n", text.substr(0, end));
    text.erase(0, end + 1);
  }
}

void print_reason(const OverlapPoint& point) {
  const bool prefill = point.bucket.phase == Phase::prefill;
  fmt::print("  {}, {} rows, {}: {:.1f} -> {:.1f} ms\n", prefill ? "prefill" : "decode",
             point.bucket.rows, link_name(point.link), point.none_us / 1e3, point.step_us / 1e3);
  print_wrapped(describe(point.plan, OrderTable::builtin()));
  print_wrapped(point.why);
}

}  // namespace

std::vector<OverlapPoint> plan_overlap(const ForecastInput& input, const Forecast& forecast) {
  const ParallelSettings& parallel = input.settings.parallel;
  OverlapForecastInput overlap{.choice = forecast.choice,
                               .cost = forecast.cost,
                               .speed = input.speed,
                               .num_ranks = forecast.num_ranks,
                               .kv_len = std::min(forecast.kv_len, kMaxKeys)};
  for (int rows = 1; rows <= 512; rows *= 2) overlap.decode_rows.push_back(rows);
  for (int rows = 512; rows <= 8192; rows *= 2) overlap.prefill_rows.push_back(rows);
  StageLink link{
      .latency_us = parallel.ep_link_latency_us > 0 ? parallel.ep_link_latency_us : kLatencyUs,
      .core_s_per_gb = input.link.core_s_per_gb};
  std::vector<double> speeds(std::begin(kLinks), std::end(kLinks));
  if (parallel.ep_link_gbit > 0) speeds = {parallel.ep_link_gbit};
  for (const double speed : speeds) {
    link.gbit_per_s = speed;
    overlap.links.push_back(link);
  }
  if (const auto isa = choose_isa(); isa && *isa >= Isa::amx) overlap.row_tile = kTileRows;
  return forecast_overlap(overlap);
}

void print_overlap(const std::vector<OverlapPoint>& points, int num_ranks) {
  if (points.empty()) {
    fmt::print("\noverlap   there is nothing to overlap: no experts, or one rank\n");
    return;
  }
  const StageLink& link = points.front().link;
  std::vector<OverlapPoint> sizes;
  for (const OverlapPoint& point : points)
    if (point.link.gbit_per_s == link.gbit_per_s) sizes.push_back(point);
  const size_t num_links = points.size() / sizes.size();
  fmt::print("\noverlap   {} ranks, {:g} us, a GB out and in takes {:g} s of a core\n", num_ranks,
             link.latency_us, link.core_s_per_gb);
  fmt::print(
      "          best plan and how much of a step it saves: - none, one half, two halves;\n"
      "          /2: rows leave in 2 parts, x2: each is returned in 2 waves;\n"
      "          below {:g} % a server keeps none\n",
      100 * kTuning.other_kind);
  fmt::print("  {:<19}", "Gbit/s");
  for (size_t i = 0; i < num_links; ++i)
    fmt::print("{:>11}", fmt::format("{:g}", points[i * sizes.size()].link.gbit_per_s));
  fmt::print("\n");
  for (size_t row = 0; row < sizes.size(); ++row) {
    const Bucket& bucket = sizes[row].bucket;
    fmt::print("  {:<19}", fmt::format("{:<7} {:>5} rows", phase_name(bucket.phase), bucket.rows));
    for (size_t i = 0; i < num_links; ++i)
      fmt::print("{:>11}", cell(points[i * sizes.size() + row]));
    fmt::print("\n");
  }
  fmt::print("why{}\n", num_links > 1 ? "       (of all sizes: --ep-link-gbit X)" : "");
  for (const OverlapPoint& point : points) {
    const bool shown =
        point.bucket.rows == (point.bucket.phase == Phase::prefill ? kShownPrefill : kShownDecode);
    if (num_links == 1 || shown) print_reason(point);
  }
}

Json overlap_json(const std::vector<OverlapPoint>& points) {
  Json all = Json::array();
  for (const OverlapPoint& point : points)
    all.push_back({{"phase", phase_name(point.bucket.phase)},
                   {"rows", point.bucket.rows},
                   {"link_gbit", point.link.gbit_per_s},
                   {"link_latency_us", point.link.latency_us},
                   {"plan", describe(point.plan, OrderTable::builtin())},
                   {"kind", plan_kind_name(kind_of(point.plan, OrderTable::builtin()))},
                   {"gain", point.gain()},
                   {"none_us", point.none_us},
                   {"step_us", point.step_us},
                   {"lower_bound_us", point.lower_bound_us},
                   {"exchange_exposed_us", point.exposed_us},
                   {"hidden", point.hidden},
                   {"why", point.why}});
  return all;
}

}  // namespace hocket
