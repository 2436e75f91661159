#include "bench/speculation_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/quantile.h"

namespace hocket {
namespace {

constexpr double kOffGoal = 0.99, kBestGoal = 0.97;
constexpr double kQuotesGoal = 1.3;  // with one answer
// A fixed number that gains kWorthFinding is to be found within kFindingSteps.
constexpr double kWorthFinding = 1.05;
constexpr int kFindingSteps = 200;

struct MeanRatio {
  double ratio = 0, error = 0;  // the geometric mean of ratios; its relative standard error
};
MeanRatio mean_of(const std::vector<double>& ratios) {
  if (ratios.empty()) return {};
  const auto num = static_cast<double>(ratios.size());
  double sum = 0, squares = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  for (const double ratio : ratios) squares += std::pow(std::log(ratio) - sum / num, 2);
  return {std::exp(sum / num), std::sqrt(squares / std::max(num - 1, 1.0) / num)};
}

// Says whether a ratio reaches a goal; `error` is its relative standard error.
const char* verdict(const MeanRatio& mean, double goal) {
  if (mean.ratio >= goal) return "met";
  return mean.ratio * (1 + 2 * mean.error) >= goal ? "in noise" : "missed";
}

std::vector<MeanRatio> ratios_of(const std::vector<FixedSteps>& fixed) {
  std::vector<MeanRatio> ratios;
  for (const FixedSteps& steps : fixed)
    ratios.push_back({quantile(steps.rates, 0.5), mean_of(steps.rates).error});
  return ratios;
}

}  // namespace

void SpeculationTable::print_steps(const FixedSteps& plain,
                                   const std::vector<FixedSteps>& fixed) const {
  if (!options_.json)
    fmt::print(
        "\n| Context | Answers | Drafts | Experts a layer | Bytes | Time |\n"
        "|---:|---:|---:|---:|---:|---:|\n"
        "| {} | {} | 0 | {:.1f} | {:.2f} GB | {:.1f} ms |\n",
        group_.context, group_.answers, plain.experts, plain.bytes / 1e9,
        1e3 * group_.answers / quantile(off_rates_, 0.5));
  for (const FixedSteps& steps : fixed) {
    const double bytes = steps.bytes / plain.bytes, time = 1 / quantile(steps.rates, 0.5);
    if (options_.json)
      fmt::print("{}\n", nlohmann::ordered_json({{"context_len", group_.context},
                                                 {"answers", group_.answers},
                                                 {"drafts", steps.drafts},
                                                 {"experts_a_layer", steps.experts},
                                                 {"bytes_ratio", bytes},
                                                 {"step_time_ratio", time}})
                             .dump());
    else
      fmt::print("| {} | {} | {} | {:.1f} | {:.2f} | {:.2f} |\n", group_.context, group_.answers,
                 steps.drafts, steps.experts, bytes, time);
  }
}

void SpeculationTable::print_head() const {
  if (options_.json) return;
  const char* const point = !imposes() ? "Algorithm" : quotes() ? "Edits" : "Acceptance";
  fmt::print("\n| Context | Answers | {} | Off, tokens/s |", point);
  for (const int drafts : options_.drafts) fmt::print(" {} drafts |", drafts);
  fmt::print(" auto | first | of the best | found after | goals |\n|---:|---:|---:|---:|");
  for (size_t i = 0; i < options_.drafts.size(); ++i) fmt::print("---:|");
  fmt::print("---:|---:|---:|---:|---|\n");
}

void SpeculationTable::print_point(int percent, const std::vector<FixedSteps>& fixed,
                                   const GateFigures& gate) const {
  const MeanRatio chosen = mean_of(gate.later), first = mean_of(gate.first);
  const std::vector<MeanRatio> ratios = ratios_of(fixed);
  MeanRatio best = *std::ranges::max_element(ratios, {}, &MeanRatio::ratio);
  if (best.ratio < 1) best = {.ratio = 1};  // none is a number, too
  const MeanRatio of_best{chosen.ratio / best.ratio, std::hypot(chosen.error, best.error)};
  std::string goals =
      fmt::format("off {}, best {}", verdict(chosen, kOffGoal), verdict(of_best, kBestGoal));
  if (best.ratio >= kWorthFinding)
    goals += gate.found_after >= 0 && gate.found_after <= kFindingSteps ? ", found met"
                                                                        : ", found missed";
  if (quotes() && group_.answers == 1)
    goals += fmt::format(", quotes {}", verdict(chosen, kQuotesGoal));
  if (gate.is_cut)
    goals +=
        fmt::format("; cut behind {} steps and {} blocks", gate.num_learning, gate.later.size());
  const double off_rate = quantile(off_rates_, 0.5);
  if (options_.json) {
    nlohmann::ordered_json line = {{"context_len", group_.context},
                                   {"answers", group_.answers},
                                   {"off_tokens_per_s", off_rate}};
    if (imposes())
      line[quotes() ? "edits" : "acceptance"] = percent / 100.0;
    else
      line["algorithm"] = options_.algorithm;
    for (size_t i = 0; i < ratios.size(); ++i)
      line[fmt::format("{} drafts", fixed[i].drafts)] = ratios[i].ratio;
    line["auto"] = {{"ratio", chosen.ratio},
                    {"error", chosen.error},
                    {"least", quantile(gate.later, 0)},
                    {"most", quantile(gate.later, 1)},
                    {"first", first.ratio},
                    {"of_best", of_best.ratio},
                    {"of_best_error", of_best.error},
                    {"found_after", gate.found_after},
                    {"goals", goals},
                    {"choices", gate.choices}};
    return fmt::print("{}\n", line.dump());
  }
  fmt::print("| {} | {} | {} | {:.1f} |", group_.context, group_.answers,
             imposes() ? fmt::format("{:.2f}", percent / 100.0) : options_.algorithm, off_rate);
  for (const MeanRatio& each : ratios) fmt::print(" {:.2f} |", each.ratio);
  fmt::print(" {:.3f} ± {:.3f} ({:.2f}–{:.2f}) | {:.3f} | {:.3f} ± {:.3f} | {} | {} |\n",
             chosen.ratio, chosen.error, quantile(gate.later, 0), quantile(gate.later, 1),
             first.ratio, of_best.ratio, of_best.error,
             gate.found_after < 0 ? "–" : std::to_string(gate.found_after), goals);
}

}  // namespace hocket
