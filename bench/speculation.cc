#include "bench/speculation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/quantile.h"
#include "bench/ending.h"
#include "bench/speculation_rig.h"
#include "engine/plan/cost.h"

namespace hocket {
namespace {

constexpr int kBlockTokens = 16;  // a block has at least so many of each answer
constexpr int kFirstSteps = 200;  // in which the gate may still learn

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

// Returns the tokens of an answer with so many drafts in a step.
double tokens_of(int drafts, int percent) {
  double tokens = 0;
  for (int i = 0; i <= drafts; ++i) tokens += std::pow(percent / 100.0, i);
  return tokens;
}

// The three engines that take turns. `off` is as a user has it who sets no flag.
struct SpeculationRigs {
  std::unique_ptr<SpeculationRig> off, fixed, gated;
  ModelCost cost;
};

// Steps with a fixed number of drafts, and without any if it is 0.
struct FixedSteps {
  int drafts = 0;
  double experts = 0, bytes = 0;  // experts of a layer; bytes of all ranks
  std::vector<double> rates;      // ratios of tokens/s to none, by round; no draft held
};

// The choices of the gate.
struct GateFigures {
  std::vector<double> first, later;  // ratios of tokens/s to none, by block
  int found_after = -1;              // its steps until most of a block had drafts; -1: never
};

// Plays all points of one group.
class GroupMeasurement {
 public:
  GroupMeasurement(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                   SpeculationRigs& rigs)
      : options_(options),
        group_(group),
        rigs_(rigs),
        off_(options, group, *rigs.off),
        fixed_(options, group, *rigs.fixed),
        gated_(options, group, *rigs.gated) {}

  // Returns false if a token differed.
  Result<bool> measure();

 private:
  Result<void> measure_off();
  Result<std::vector<FixedSteps>> measure_fixed(const ImposedChoice& choice);
  Result<GateFigures> measure_gate(const ImposedChoice& choice);
  Result<void> count_experts(FixedSteps& steps);
  void print_steps(const std::vector<FixedSteps>& fixed) const;
  void print_point(int percent, const std::vector<FixedSteps>& fixed,
                   const GateFigures& gate) const;
  std::vector<double> ratios_of(const std::vector<FixedSteps>& fixed, int percent) const;
  GateTotals gate_totals() const;
  bool quotes() const { return !options_.edits.empty(); }

  const BenchSpeculationOptions& options_;
  const SpeculationGroup group_;
  SpeculationRigs& rigs_;
  SpeculationPlayer off_, fixed_, gated_;
  ImposedDrafts::Texts texts_;
  FixedSteps plain_;               // steps without drafts
  double off_rate_ = 0;            // tokens/s in the last block without drafts
  std::vector<double> off_rates_;  // tokens/s in each of these blocks
};

Result<void> GroupMeasurement::measure_off() {
  HOCKET_TRY(const PlayedSteps off, off_.play({}, kBlockTokens, options_.seconds / 2));
  off_rate_ = off.rate();
  off_rates_.push_back(off_rate_);
  return {};
}

// Without acceptance every step brings one token, so that the rate shows the time of a step; and
// the texts last longest. That time does not depend on which drafts hold, so it is measured once.
Result<std::vector<FixedSteps>> GroupMeasurement::measure_fixed(const ImposedChoice& choice) {
  std::vector<FixedSteps> out;
  for (const int drafts : options_.drafts) out.push_back({.drafts = drafts});
  HOCKET_TRY_VOID(measure_off());
  for (int round = 0; round <= options_.rounds; ++round)
    for (FixedSteps& steps : out) {
      const double before = off_rate_;
      HOCKET_TRY(const PlayedSteps with,
                 fixed_.play({steps.drafts, choice.percent, choice.counts_expected}, kBlockTokens,
                             options_.seconds));
      HOCKET_TRY_VOID(measure_off());
      if (round > 0) steps.rates.push_back(with.rate() * 2 / (before + off_rate_));
    }
  if (quotes()) return out;
  HOCKET_TRY_VOID(count_experts(plain_));
  for (FixedSteps& steps : out) HOCKET_TRY_VOID(count_experts(steps));
  return out;
}

Result<void> GroupMeasurement::count_experts(FixedSteps& steps) {
  HOCKET_TRY(steps.experts, fixed_.experts_touched({.most = steps.drafts}));
  const ModelConfig& model = rigs_.off->engine().info().model;
  const double rows = static_cast<double>(group_.answers) * (1 + steps.drafts);
  PassShape pass = rigs_.cost.decode(group_.answers, group_.context);
  pass.pairs *= rows / pass.rows;
  pass.rows = pass.outputs = rows;
  pass.experts_hit =
      steps.experts * static_cast<double>(std::ranges::count(model.layer_is_moe, true));
  steps.bytes = rigs_.cost.bytes(pass);
  return {};
}

GateTotals GroupMeasurement::gate_totals() const {
  GateTotals most;  // the rank with most steps has these
  for (const SpeculationView::OfRank& rank : rigs_.gated->engine().speculation().ranks)
    if (rank.gate.totals.num_steps > most.num_steps) most = rank.gate.totals;
  return most;
}

Result<GateFigures> GroupMeasurement::measure_gate(const ImposedChoice& choice) {
  GateFigures out;
  HOCKET_TRY_VOID(measure_off());
  const uint64_t begin = gate_totals().num_steps;
  while (std::ssize(out.later) < 2 * options_.rounds) {
    const double off_before = off_rate_;
    const GateTotals before = gate_totals();
    HOCKET_TRY(const PlayedSteps played,
               gated_.play({kMaxDrafts, choice.percent, choice.counts_expected}, kBlockTokens,
                           options_.seconds));
    const GateTotals after = gate_totals();
    const bool has_drafts =
        2 * (after.num_draft_steps - before.num_draft_steps) > after.num_steps - before.num_steps;
    if (out.found_after < 0 && has_drafts)
      out.found_after = static_cast<int>(after.num_steps - begin);
    HOCKET_TRY_VOID(measure_off());
    (before.num_steps - begin < kFirstSteps ? out.first : out.later)
        .push_back(played.rate() * 2 / (off_before + off_rate_));
  }
  return out;
}

std::vector<double> GroupMeasurement::ratios_of(const std::vector<FixedSteps>& fixed,
                                                int percent) const {
  std::vector<double> ratios;
  for (const FixedSteps& steps : fixed)
    ratios.push_back(quantile(steps.rates, 0.5) *
                     (quotes() ? 1 : tokens_of(steps.drafts, percent)));
  return ratios;
}

void GroupMeasurement::print_steps(const std::vector<FixedSteps>& fixed) const {
  if (!options_.json)
    fmt::print(
        "\n| Context | Answers | Drafts | Experts a layer | Bytes | Time |\n"
        "|---:|---:|---:|---:|---:|---:|\n"
        "| {} | {} | 0 | {:.1f} | {:.2f} GB | {:.1f} ms |\n",
        group_.context, group_.answers, plain_.experts, plain_.bytes / 1e9,
        1e3 * group_.answers / quantile(off_rates_, 0.5));
  for (const FixedSteps& steps : fixed) {
    const double bytes = steps.bytes / plain_.bytes, time = 1 / quantile(steps.rates, 0.5);
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

void GroupMeasurement::print_point(int percent, const std::vector<FixedSteps>& fixed,
                                   const GateFigures& gate) const {
  const MeanRatio chosen = mean_of(gate.later), first = mean_of(gate.first);
  const std::vector<double> ratios = ratios_of(fixed, percent);
  const double best = std::max(1.0, std::ranges::max(ratios));
  const char* kind = quotes() ? "edits" : "acceptance";
  const double off_rate = quantile(off_rates_, 0.5);
  if (options_.json) {
    nlohmann::ordered_json line = {{"context_len", group_.context},
                                   {"answers", group_.answers},
                                   {kind, percent / 100.0},
                                   {"off_tokens_per_s", off_rate}};
    for (size_t i = 0; i < ratios.size(); ++i)
      line[fmt::format("{} drafts", fixed[i].drafts)] = ratios[i];
    line["auto"] = {{"ratio", chosen.ratio},
                    {"error", chosen.error},
                    {"least", quantile(gate.later, 0)},
                    {"most", quantile(gate.later, 1)},
                    {"first", first.ratio},
                    {"of_best", chosen.ratio / best},
                    {"found_after", gate.found_after}};
    return fmt::print("{}\n", line.dump());
  }
  fmt::print("| {} | {} | {:.2f} | {:.1f} |", group_.context, group_.answers, percent / 100.0,
             off_rate);
  for (const double ratio : ratios) fmt::print(" {:.2f} |", ratio);
  fmt::print(" {:.3f} ± {:.3f} ({:.2f}–{:.2f}) | {:.3f} | {:.3f} | {} |\n", chosen.ratio,
             chosen.error, quantile(gate.later, 0), quantile(gate.later, 1), first.ratio,
             chosen.ratio / best, gate.found_after < 0 ? "–" : std::to_string(gate.found_after));
}

Result<bool> GroupMeasurement::measure() {
  HOCKET_TRY(texts_, off_.learn_texts());
  const auto& percents = quotes() ? options_.edits : options_.acceptances;
  std::vector<FixedSteps> fixed;
  const auto set_texts = [&](const ImposedDrafts::Texts& quoted) {
    for (SpeculationPlayer* player : {&fixed_, &gated_}) player->set_texts(texts_, quoted);
  };
  set_texts({});
  if (!quotes()) {
    HOCKET_TRY(fixed, measure_fixed({}));
    print_steps(fixed);
  }
  if (!options_.json) {
    fmt::print("\n| Context | Answers | {} | Off, tokens/s |", quotes() ? "Edits" : "Acceptance");
    for (const int drafts : options_.drafts) fmt::print(" {} drafts |", drafts);
    fmt::print(" auto | first | of the best | found after |\n|---:|---:|---:|---:|");
    for (size_t i = 0; i < options_.drafts.size(); ++i) fmt::print("---:|");
    fmt::print("---:|---:|---:|---:|\n");
  }
  for (const int percent : percents) {
    const ImposedChoice choice{.percent = percent, .counts_expected = !quotes()};
    if (quotes()) {
      set_texts(quotes_of(texts_, group_.context + 1, percent,
                          rigs_.off->engine().info().model.vocab_size));
      HOCKET_TRY(fixed, measure_fixed(choice));
    }
    HOCKET_TRY(const GateFigures gate, measure_gate(choice));
    print_point(percent, fixed, gate);
    std::fflush(stdout);  // points take long, and a pipe holds lines back
  }
  const bool is_equal = fixed_.is_equal() && gated_.is_equal();
  if (!is_equal) fmt::print("{} answers at {}: TOKENS DIFFER\n", group_.answers, group_.context);
  return is_equal;
}

Result<void> check(const BenchSpeculationOptions& options) {
  const auto in_range = [](const std::vector<int>& values, int least, int most) {
    return std::ranges::all_of(values, [=](int value) { return value >= least && value <= most; });
  };
  if (options.answers.empty() || !in_range(options.answers, 1, 256))
    return bad_flag("answers", "is 1 to 256");
  if (options.contexts.empty() || !in_range(options.contexts, 2, 1 << 20))
    return bad_flag("contexts", "is 2 to 1048576");
  if (!in_range(options.acceptances, 0, 100)) return bad_flag("acceptances", "is 0 to 100");
  if (!in_range(options.edits, 0, 100)) return bad_flag("edits", "is 0 to 100");
  if (options.drafts.empty() || !in_range(options.drafts, 1, kMaxDrafts))
    return bad_flag("drafts", "is 1 to 8");
  if (options.output_len < 64 || options.rounds < 1)
    return bad_flag("output-len", "is 64 or more, --rounds 1 or more");
  return {};
}

Result<bool> measure_all(const BenchSpeculationOptions& options) {
  HOCKET_TRY_VOID(check(options));
  ServerSettings settings = options.settings;
  if (settings.memory.max_running_requests == 0)  // room for all drafts of all answers
    settings.memory.max_running_requests = std::ranges::max(options.answers) * (1 + kMaxDrafts);
  if (settings.memory.max_total_tokens == 0)  // three engines share the memory
    settings.memory.max_total_tokens =
        2 * (std::ranges::max(options.contexts) +
             int64_t{std::ranges::max(options.answers)} *
                 (options.output_len + 4 * settings.memory.page_size));
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  HOCKET_TRY(ModelCost cost, ModelCost::measure(choice));
  SpeculationRigs rigs{.off = nullptr, .fixed = nullptr, .gated = nullptr, .cost = std::move(cost)};
  HOCKET_TRY(rigs.off, SpeculationRig::create(settings, SpeculationRig::Drafts::none));
  HOCKET_TRY(rigs.fixed, SpeculationRig::create(settings, SpeculationRig::Drafts::fixed));
  HOCKET_TRY(rigs.gated, SpeculationRig::create(settings, SpeculationRig::Drafts::gate));
  bool is_equal = true;
  for (const int context : options.contexts)
    for (const int answers : options.answers) {
      const SpeculationGroup group{answers, context};
      HOCKET_TRY(const bool equal, GroupMeasurement(options, group, rigs).measure());
      is_equal &= equal;
    }
  return is_equal;
}

}  // namespace

int bench_speculation(const BenchSpeculationOptions& options) {
  const Result<bool> is_equal = measure_all(options);
  if (!is_equal) return end_with(is_equal.error());
  return *is_equal ? 0 : 1;
}

}  // namespace hocket
