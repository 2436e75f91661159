#include "bench/speculation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "bench/bench_error.h"
#include "bench/speculation_rig.h"
#include "bench/speculation_table.h"
#include "engine/plan/cost.h"
#include "policy/speculation/gate_text.h"

namespace hocket {
namespace {

constexpr int kBlockTokens = 16;    // least tokens of each answer in a block of short steps
constexpr int kBlockSteps = 4;      // steps of a block of long ones
constexpr double kLongStep = 0.05;  // seconds
// Behind the first acceptance of a group, the gate gets this share of the steps to learn in.
constexpr double kLaterShare = 0.3;

// An engine that takes turns with others, and its player; it lives as long as this.
struct PlayedRig {
  std::unique_ptr<SpeculationRig> rig;
  std::unique_ptr<SpeculationPlayer> player;
};

// The parts that all groups share. `off` is an engine as a user has it who sets no flag.
struct SpeculationBench {
  ServerSettings settings;
  std::unique_ptr<SpeculationRig> off;
  ModelCost cost;
};

// The time that is left for a point.
class PointTime {
 public:
  explicit PointTime(double seconds) : seconds_(seconds), begin_(RealClock().now()) {}
  bool is_over() const {
    return seconds_ > 0 && to_seconds(RealClock().now() - begin_) >= seconds_;
  }

 private:
  const double seconds_;
  const TimePoint begin_;
};

// Plays all points of one group.
class GroupMeasurement {
 public:
  GroupMeasurement(const BenchSpeculationOptions& options, const SpeculationGroup& group,
                   SpeculationBench& bench)
      : options_(options),
        group_(group),
        bench_(bench),
        off_(options, group, *bench.off),
        table_(options, group) {}

  // Returns false if a token differed.
  Result<bool> measure();

 private:
  Result<void> begin(PlayedRig& played, SpeculationRig::Drafts drafts, int num_drafts = kMaxDrafts);
  Result<void> begin_fixed();
  void end(PlayedRig& played);
  void set_quotes(int percent);
  BlockLength block() const;
  Result<void> measure_off();
  Result<std::vector<FixedSteps>> measure_fixed(const ImposedChoice& choice);
  Result<void> show_steps();
  Result<GateFigures> measure_gate(const ImposedChoice& choice, int num_learning);
  Result<void> play_gate(const ImposedChoice& choice, uint64_t begin, GateFigures& figures);
  Result<void> count_experts(FixedSteps& steps);
  GateTotals gate_totals() const;
  bool quotes() const { return !options_.edits.empty(); }
  bool imposes() const { return options_.algorithm.empty(); }
  std::vector<int> points() const {
    return !imposes() ? std::vector{0} : quotes() ? options_.edits : options_.acceptances;
  }

  const BenchSpeculationOptions& options_;
  const SpeculationGroup group_;
  SpeculationBench& bench_;
  SpeculationPlayer off_;
  std::vector<PlayedRig> fixed_;  // one, or, if drafts are not imposed, one for each number
  PlayedRig gated_;
  ImposedDrafts::Texts texts_, quotes_;
  bool is_equal_ = true;  // no token of an engine that has ended differed
  double off_rate_ = 0;   // tokens/s in the last block without drafts
  SpeculationTable table_;
};

Result<void> GroupMeasurement::begin(PlayedRig& played, SpeculationRig::Drafts drafts,
                                     int num_drafts) {
  HOCKET_TRY(played.rig,
             SpeculationRig::create(bench_.settings, drafts, {options_.algorithm, num_drafts}));
  played.player = std::make_unique<SpeculationPlayer>(options_, group_, *played.rig);
  played.player->set_texts(texts_, quotes_);
  return {};
}

Result<void> GroupMeasurement::begin_fixed() {
  fixed_.resize(imposes() ? 1 : options_.drafts.size());
  for (size_t i = 0; i < fixed_.size(); ++i)
    HOCKET_TRY_VOID(begin(fixed_[i], SpeculationRig::Drafts::fixed,
                          imposes() ? kMaxDrafts : options_.drafts[i]));
  return {};
}

void GroupMeasurement::end(PlayedRig& played) {
  if (played.player != nullptr) is_equal_ &= played.player->is_equal();
  played.player.reset();
  played.rig.reset();
}

BlockLength GroupMeasurement::block() const {
  const bool is_long = off_rate_ > 0 && group_.answers / off_rate_ > kLongStep;
  if (is_long) return {.steps = kBlockSteps};
  return {.tokens = kBlockTokens, .seconds = options_.seconds};
}

// The first block shows how long steps are.
Result<void> GroupMeasurement::measure_off() {
  BlockLength length = off_rate_ > 0 ? block() : BlockLength{.tokens = kBlockSteps};
  length.seconds /= 2;
  HOCKET_TRY(const PlayedSteps off, off_.play({}, length));
  off_rate_ = off.rate();
  table_.note_off(off_rate_);
  return {};
}

Result<std::vector<FixedSteps>> GroupMeasurement::measure_fixed(const ImposedChoice& choice) {
  std::vector<FixedSteps> out;
  for (const int drafts : options_.drafts) out.push_back({.drafts = drafts});
  const PointTime time(options_.point_seconds);
  HOCKET_TRY_VOID(measure_off());
  int round = 0;  // the first is not counted, and one is
  for (; round <= options_.rounds && (round < 2 || !time.is_over()); ++round)
    for (FixedSteps& steps : out) {
      const double before = off_rate_;
      const auto at = imposes() ? size_t{0} : static_cast<size_t>(&steps - out.data());
      HOCKET_TRY(
          const PlayedSteps with,
          fixed_[at].player->play({steps.drafts, choice.percent, choice.counts_expected}, block()));
      HOCKET_TRY_VOID(measure_off());
      if (round > 0) steps.rates.push_back(with.rate() * 2 / (before + off_rate_));
    }
  if (round <= options_.rounds)
    fmt::print(stderr, "{} answers at {}: fixed numbers are cut behind {} rounds\n", group_.answers,
               group_.context, round - 1);
  return out;
}

// Without acceptance every step brings one token, so that the rate shows the time of a step.
Result<void> GroupMeasurement::show_steps() {
  HOCKET_TRY(std::vector<FixedSteps> fixed, measure_fixed({}));
  FixedSteps plain;
  HOCKET_TRY_VOID(count_experts(plain));
  for (FixedSteps& steps : fixed) HOCKET_TRY_VOID(count_experts(steps));
  table_.print_steps(plain, fixed);
  return {};
}

Result<void> GroupMeasurement::count_experts(FixedSteps& steps) {
  HOCKET_TRY(steps.experts, fixed_[0].player->experts_touched({.max_drafts = steps.drafts}));
  const ModelConfig& model = bench_.off->engine().info().model;
  const double rows = static_cast<double>(group_.answers) * (1 + steps.drafts);
  PassShape pass = bench_.cost.decode(group_.answers, group_.context);
  // The answers of a rank share the pages of their prompts.
  const int ranks = std::min(bench_.settings.parallel.ep_size, group_.answers);
  pass.kv_tokens = static_cast<double>(ranks) * group_.context + group_.answers;
  pass.pairs *= rows / pass.rows;
  pass.rows = pass.outputs = rows;
  pass.experts_hit =
      steps.experts * static_cast<double>(std::ranges::count(model.layer_is_moe, true));
  steps.bytes = bench_.cost.bytes(pass);
  return {};
}

GateTotals GroupMeasurement::gate_totals() const {
  GateTotals most;  // the rank with most steps has these
  for (const SpeculationView::RankEntry& rank : gated_.rig->engine().speculation().ranks)
    if (rank.gate.totals.num_steps > most.num_steps) most = rank.gate.totals;
  return most;
}

// Two blocks of the gate are between two without drafts, whose rates are interpolated.
Result<GateFigures> GroupMeasurement::measure_gate(const ImposedChoice& choice, int num_learning) {
  const PointTime time(options_.point_seconds);
  GateFigures out;
  HOCKET_TRY_VOID(measure_off());
  const uint64_t begin = gate_totals().num_steps;
  const auto learns = [&] {
    return std::cmp_less(gate_totals().num_steps - begin, num_learning) && !time.is_over();
  };
  while (learns()) HOCKET_TRY_VOID(play_gate(choice, begin, out));
  out.first = std::exchange(out.later, {});
  out.num_learning = static_cast<int>(gate_totals().num_steps - begin);
  while (out.later.empty() || (std::ssize(out.later) < 2 * options_.rounds && !time.is_over()))
    HOCKET_TRY_VOID(play_gate(choice, begin, out));
  for (const SpeculationView::RankEntry& rank : gated_.rig->engine().speculation().ranks)
    for (const GateState::Bucket& bucket : rank.gate.buckets)
      out.choices.push_back(text_of(bucket, rank.gate.is_fixed));
  out.is_cut = out.num_learning < num_learning || std::ssize(out.later) < 2 * options_.rounds;
  return out;
}

Result<void> GroupMeasurement::play_gate(const ImposedChoice& choice, uint64_t begin,
                                         GateFigures& figures) {
  const double off_before = off_rate_;
  std::array<double, 2> rates{};
  for (double& rate : rates) {
    const GateTotals before = gate_totals();
    HOCKET_TRY(const PlayedSteps played,
               gated_.player->play({kMaxDrafts, choice.percent, choice.counts_expected}, block()));
    rate = played.rate();
    const GateTotals after = gate_totals();
    const bool has_drafts =
        2 * (after.num_draft_steps - before.num_draft_steps) > after.num_steps - before.num_steps;
    if (figures.found_after < 0 && has_drafts)
      figures.found_after = static_cast<int>(after.num_steps - begin);
  }
  HOCKET_TRY_VOID(measure_off());
  figures.later.push_back(rates[0] * 3 / (2 * off_before + off_rate_));
  figures.later.push_back(rates[1] * 3 / (off_before + 2 * off_rate_));
  return {};
}

void GroupMeasurement::set_quotes(int percent) {
  quotes_ =
      quotes_of(texts_, group_.context + 1, percent, bench_.off->engine().info().model.vocab_size);
  for (const PlayedRig* played : {&fixed_[0], &gated_}) played->player->set_texts(texts_, quotes_);
}

// The fixed numbers are played for each point, so both engines live through all.
Result<bool> GroupMeasurement::measure() {
  HOCKET_TRY(texts_, off_.learn_texts());
  HOCKET_TRY_VOID(begin_fixed());
  if (imposes() && !quotes()) HOCKET_TRY_VOID(show_steps());
  HOCKET_TRY_VOID(begin(gated_, SpeculationRig::Drafts::gate));
  table_.print_head();
  int num_learning = options_.gate_steps;
  for (const int percent : points()) {
    const ImposedChoice choice{.percent = percent, .counts_expected = imposes() && !quotes()};
    if (quotes()) set_quotes(percent);
    HOCKET_TRY(const std::vector<FixedSteps> fixed, measure_fixed(choice));
    HOCKET_TRY(const GateFigures gate, measure_gate(choice, num_learning));
    num_learning = static_cast<int>(std::ceil(kLaterShare * options_.gate_steps));
    table_.print_point(percent, fixed, gate);
    std::fflush(stdout);  // points take long, and a pipe holds lines back
  }
  for (PlayedRig& fixed : fixed_) end(fixed);
  end(gated_);
  if (!is_equal_) fmt::print("{} answers at {}: TOKENS DIFFER\n", group_.answers, group_.context);
  return is_equal_;
}

Result<void> check(const BenchSpeculationOptions& options) {
  if (options.answers.empty()) return bad_flag("answers", "is empty", "--answers 1,4,16,64");
  if (options.contexts.empty()) return bad_flag("contexts", "is empty", "--contexts 512");
  if (options.drafts.empty()) return bad_flag("drafts", "is empty", "--drafts 1,2,3,4");
  if (!options.algorithm.empty() && !options.edits.empty())
    return bad_flag("speculative-algorithm", "excludes --edits", "one of them");
  HOCKET_TRY_VOID(check_each("answers", options.answers, {1, 256}));
  HOCKET_TRY_VOID(check_each("contexts", options.contexts, {2, 1 << 20}));
  HOCKET_TRY_VOID(check_each("acceptances", options.acceptances, {0, 100}));
  HOCKET_TRY_VOID(check_each("edits", options.edits, {0, 100}));
  HOCKET_TRY_VOID(check_each("drafts", options.drafts, {1, kMaxDrafts}));
  HOCKET_TRY_VOID(check_number("output-len", options.output_len, {64, 1e9}));
  HOCKET_TRY_VOID(check_number("rounds", options.rounds, {1, 1e6}));
  HOCKET_TRY_VOID(check_number("gate-steps", options.gate_steps, {0, 1e5}));
  HOCKET_TRY_VOID(check_number("point-seconds", options.point_seconds, {0, 1e9}));
  return {};
}

Result<bool> measure_all(const BenchSpeculationOptions& options) {
  HOCKET_TRY_VOID(check(options));
  ServerSettings settings = options.settings;
  if (settings.memory.max_running_requests == 0)  // room for all drafts of all answers
    settings.memory.max_running_requests = std::ranges::max(options.answers) * (1 + kMaxDrafts);
  if (settings.memory.max_total_tokens == 0)  // up to three engines share the memory
    settings.memory.max_total_tokens =
        2 * (std::ranges::max(options.contexts) +
             int64_t{std::ranges::max(options.answers)} *
                 (options.output_len + 4 * settings.memory.page_size));
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  HOCKET_TRY(ModelCost cost, ModelCost::measure(choice));
  SpeculationBench bench{.settings = settings, .off = nullptr, .cost = std::move(cost)};
  HOCKET_TRY(bench.off, SpeculationRig::create(settings, SpeculationRig::Drafts::none));
  bool is_equal = true;
  for (const int context : options.contexts)
    for (const int answers : options.answers) {
      const SpeculationGroup group{answers, context};
      HOCKET_TRY(const bool equal, GroupMeasurement(options, group, bench).measure());
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
