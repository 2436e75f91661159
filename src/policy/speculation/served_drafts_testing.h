// A made-up server with drafts, in virtual time: steps touch experts, drafts are accepted by
// chance.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "policy/speculation/draft_overlap.h"
#include "policy/speculation/speculation_gate.h"

namespace hocket::testing {

// The time of a step: a fixed part, the experts that its rows touch, its rows, and its keys.
struct DraftMachine {
  double fixed_us = 1000, expert_us = 100, row_us = 5, key_us = 0.02;
  int num_experts = 128, top_k = 8;
  // Times of steps by rows, ascending, as a real machine took them; others lie between. Empty: by
  // the formula.
  std::vector<std::pair<int, double>> measured_us = {};

  double step_us(int num_rows, int64_t keys) const {
    if (!measured_us.empty()) return between(num_rows);
    const double untouched = std::pow(1 - static_cast<double>(top_k) / num_experts, num_rows);
    return fixed_us + expert_us * num_experts * (1 - untouched) + row_us * num_rows +
           key_us * static_cast<double>(keys);
  }

 private:
  double between(int num_rows) const {
    size_t i = 1;
    while (i + 1 < measured_us.size() && measured_us[i].first < num_rows) ++i;
    const auto& [below, below_us] = measured_us[i - 1];
    const auto& [above, above_us] = measured_us[i];
    return below_us + (above_us - below_us) * (num_rows - below) / (above - below);
  }
};

// Deviations of times from the machine's: each step by chance, all by a speed that drifts or jumps,
// some because another program delayed them, and the first ones behind a change of the number of
// drafts because their memory is cold. Shares of the time.
struct DraftNoise {
  double step = 0.02;
  double drift = 0;          // deviation of the speed
  double drift_steps = 100;  // steps after which the speed has forgotten most of what it was
  double held_up = 0;        // chance of a step to be delayed
  double held_up_by = 5;     // times as long as it would take
  double jump = 0;           // chance that the speed halves, or doubles again, with a step
  double cold = 0;
};

enum class DrafterKind : uint8_t { asked, free, ahead };

// The token at position i of every request is i. A draft is that token by a chance, else none of
// the vocabulary.
class ChanceDrafter final : public Drafter {
 public:
  ChanceDrafter(std::vector<double> chances, DrafterKind making, uint32_t seed)
      : chances_(std::move(chances)),
        drafts_(chances_.size()),
        missing_(chances_.size()),
        making_(making),
        rng_(seed) {}

  void begin(int seat, int /*max_len*/) override { missing_[static_cast<size_t>(seat)] = 0; }
  void end(int /*seat*/) override {}
  void draft(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      const auto seat = static_cast<size_t>(task.seat);
      const int num =
          making_ == DrafterKind::ahead ? std::min(task.max_drafts, depth_) : task.max_drafts;
      for (int i = 0; i < num; ++i) {
        const bool holds = std::bernoulli_distribution(chances_[seat])(rng_);
        const int token = static_cast<int>(task.tokens.size()) + i;
        drafts_[seat][static_cast<size_t>(i)] = TokenId{holds ? token : -1};
      }
      task.drafts = std::span(drafts_[seat]).first(static_cast<size_t>(num));
      task.kind = making_ == DrafterKind::ahead ? kModuleDrafts : 0;
    }
  }
  // True if they are drafts of this one.
  bool made(int seat, std::span<const TokenId> drafts) const {
    return drafts.data() == drafts_[static_cast<size_t>(seat)].data();
  }
  void set_chance(double chance) { std::ranges::fill(chances_, chance); }
  double chance(int seat) const { return chances_[static_cast<size_t>(seat)]; }
  bool is_free() const override { return making_ == DrafterKind::free; }
  bool drafts_ahead() const override { return making_ == DrafterKind::ahead; }
  bool follows(int seat) const override {
    return missing_[static_cast<size_t>(seat)] <= kMaxMissing;
  }
  // Prepares a step as the gate says. Returns true if it follows any request.
  bool prepare(SpeculationGate::DraftsAhead ahead) {
    bool any = false;
    for (int seat = 0; seat < std::ssize(missing_); ++seat) any |= follows(seat);
    const bool works = any && ahead.follows;
    depth_ = works ? ahead.num_drafts : 0;
    if (!works) miss(1);
    return works;
  }
  void miss(int num_steps) {
    for (int& missing : missing_) missing += num_steps;
  }
  int depth() const { return depth_; }

  static constexpr int kMaxMissing = 100;

 private:
  std::vector<double> chances_;
  std::vector<std::array<TokenId, kMaxDrafts>> drafts_;
  std::vector<int> missing_;  // by seat: steps in which it was not followed
  DrafterKind making_;
  int depth_ = 0;
  std::mt19937 rng_;
};

struct DraftRun {
  DraftMachine machine;
  std::vector<double> chances;  // that a draft is accepted, for each answer
  std::vector<double> free_chances =
      {};          // the same for a free drafter beside one ahead; empty: none
  int keys = 512;  // length of each answer
  DrafterKind making = DrafterKind::asked;
  DraftNoise noise;
  int slow_steps = 0;  // the first steps, which take twice as long
  // Time of a step that overlaps, as a share of one that does not; null: none overlaps.
  std::optional<double> overlapped_share = {};
  int decode_only_every = 1;  // one step of this many has answers alone; the others have prompts
  uint32_t seed = 1;
};

// Serves all answers at once, endlessly, with drafts as a gate chooses them.
class DraftServer {
 public:
  explicit DraftServer(const DraftRun& run)
      : run_(run),
        tokens_(static_cast<size_t>(run.keys) + 9 * kMaxSteps),
        lengths_(run.chances.size(), static_cast<size_t>(run.keys)),
        answers_(run.chances.size()),
        num_running_(static_cast<int>(run.chances.size())),
        rng_(run.seed + 1) {
    auto drafter = std::make_unique<ChanceDrafter>(run.chances, run.making, run.seed);
    drafter_ = drafter.get();
    std::unique_ptr<ChanceDrafter> free;
    if (!run.free_chances.empty())
      free = std::make_unique<ChanceDrafter>(run.free_chances, DrafterKind::free, run.seed + 2);
    free_ = free.get();
    gate_.emplace(SpeculationGate::Options{.drafter = std::move(drafter),
                                           .free = std::move(free),
                                           .num_seats = static_cast<int>(run.chances.size())});
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = TokenId{static_cast<int>(i)};
    for (int i = 0; i < num_answers(); ++i) gate_->begin(i, static_cast<int>(tokens_.size()));
  }

  // The answers that run: the first ones of all.
  int num_answers() const { return num_running_; }
  void set_num_running(int num) { num_running_ = num; }

  // The tokens that a step is expected to bring, and the time that it takes without noise.
  struct StepResult {
    double tokens = 0, us = 0;
    int num_drafts = 0;
    bool follows = false, has_prompts = false;
  };
  StepResult step() {
    const StepResult taken = begin_step();
    return end_step(run_.machine.step_us(num_answers() + taken.num_drafts, total_keys()));
  }
  // The halves of a step: its drafts are chosen, and it has taken `us` without what was made ahead.
  // num_other_answers, num_other_drafts: those of other servers, whose steps last as long.
  StepResult begin_step(int num_other_answers = 0, int num_other_drafts = 0) {
    if (num_steps_++ % kStepsOfARequest == 0 && run_.making == DrafterKind::ahead)
      replace_requests();
    const bool follows = run_.making == DrafterKind::ahead && drafter_->prepare(gate_->ahead());
    const auto answers = std::span(answers_).first(static_cast<size_t>(num_answers()));
    overlaps_ = run_.overlapped_share && !overlap_.waits_for_commit();
    for (size_t i = 0; i < answers.size(); ++i)
      answers[i] = {.seat = static_cast<int>(i),
                    .tokens = std::span(tokens_).first(lengths_[i]),
                    .max_drafts = !overlaps_ && overlap_.may_draft() ? kMaxDrafts : 0};
    const bool is_decode_only = num_steps_ % run_.decode_only_every == 0;
    gate_->offer({.total_keys = total_keys(),
                  .max_rows = num_answers() * kMaxDrafts,
                  .num_other_answers = num_other_answers,
                  .num_other_drafts = num_other_drafts,
                  .number = kFirstNumber + static_cast<uint64_t>(num_steps_),
                  .is_decode_only = is_decode_only},
                 answers);
    step_ = {.num_answers = num_answers(),
             .num_other_answers = num_other_answers,
             .total_keys = total_keys(),
             .is_decode_only = is_decode_only,
             .follows = follows,
             .making_us = follows ? passes_us(drafter_->depth()) : 0};
    taken_ = {.follows = follows, .has_prompts = !is_decode_only};
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto num = static_cast<int>(answers[i].drafts.size());
      int num_accepted = 0;
      while (num_accepted < num && value(answers[i].drafts[static_cast<size_t>(num_accepted)]) >= 0)
        ++num_accepted;
      const auto seat = static_cast<int>(i);
      const bool is_free = free_ != nullptr && free_->made(seat, answers[i].drafts);
      const double chance = is_free ? free_->chance(seat) : run_.chances[i];
      for (int j = 0; j <= num; ++j) taken_.tokens += std::pow(chance, j);
      if (num > 0) gate_->note_answer(static_cast<int>(i), num, num_accepted);
      lengths_[i] += static_cast<size_t>(1 + num_accepted);
      step_.num_drafts += num, step_.num_tokens += 1 + num_accepted;
    }
    overlap_.note_offer(step_.num_drafts, gate_->needs_commit());
    taken_.num_drafts = step_.num_drafts;
    return taken_;
  }
  StepResult end_step(double us) {
    taken_.us = us + step_.making_us;
    if (overlaps_) taken_.us *= *run_.overlapped_share;
    step_.us = taken_.us * noise_of(step_.num_drafts);
    if (num_steps_ <= run_.slow_steps) step_.us *= 2;
    step_.us *= overlap_.factor_of(step_, overlaps_,
                                   run_.overlapped_share ? std::nullopt : std::optional(1.0));
    gate_->note_step(step_);
    return taken_;
  }
  void set_machine(const DraftMachine& machine) { run_.machine = machine; }
  // From now on the drafts of all answers hold by this chance.
  void set_chance(double chance) {
    std::ranges::fill(run_.chances, chance);
    drafter_->set_chance(chance);
  }
  // Returns the tokens a microsecond of `num` steps.
  double rate_of(int num) {
    StepResult sum;
    for (int i = 0; i < num; ++i) {
      const StepResult taken = step();
      sum.tokens += taken.tokens, sum.us += taken.us;
    }
    return sum.tokens / sum.us;
  }
  // Returns the tokens a microsecond if every answer always has `num` drafts.
  double fixed_rate(int num) const {
    double tokens = 0;
    for (int i = 0; i < num_answers(); ++i)
      for (int j = 0; j <= num; ++j) tokens += std::pow(run_.chances[static_cast<size_t>(i)], j);
    const double us = run_.machine.step_us(num_answers() * (1 + num), total_keys());
    if (num == 0) return tokens / (us * run_.overlapped_share.value_or(1));
    return tokens / (us + (run_.making == DrafterKind::ahead ? passes_us(num) : 0));
  }
  double best_fixed_rate() const {
    double best = 0;
    for (int num = 0; num <= kMaxDrafts; ++num) best = std::max(best, fixed_rate(num));
    return best;
  }
  const SpeculationGate& gate() const { return *gate_; }
  SpeculationGate& gate() { return *gate_; }

  static constexpr int kMaxSteps = 4000;  // most that one server may take

 private:
  // The number that ranks have agreed on when they begin.
  static constexpr uint64_t kFirstNumber = 1;
  // Requests are replaced so often, all at once. If the drafter rests, it misses their prompts.
  static constexpr int kStepsOfARequest = 500;
  void replace_requests() {
    for (int i = 0; i < num_answers(); ++i) gate_->begin(i, static_cast<int>(tokens_.size()));
    if (!gate_->ahead().follows) drafter_->miss(ChanceDrafter::kMaxMissing + 1);
  }

  int64_t total_keys() const { return static_cast<int64_t>(run_.keys) * num_answers(); }

  // Returns by how much a step with `num_drafts` drafts takes longer than it should.
  double noise_of(int num_drafts) {
    const DraftNoise& noise = run_.noise;
    std::normal_distribution<double> normal(0, 1);
    double factor = std::max(0.5, 1 + noise.step * normal(rng_));
    if (noise.drift > 0) {
      const double kept = std::exp(-1 / noise.drift_steps);
      speed_ = kept * speed_ + noise.drift * std::sqrt(1 - kept * kept) * normal(rng_);
      factor *= std::exp(speed_);
    }
    if (noise.jump > 0 && std::bernoulli_distribution(noise.jump)(rng_)) is_slow_ = !is_slow_;
    if (is_slow_) factor *= 2;
    if (noise.held_up > 0 && std::bernoulli_distribution(noise.held_up)(rng_))
      factor *= noise.held_up_by;
    if (std::exchange(last_drafts_, num_drafts) != num_drafts) factor *= 1 + noise.cold;
    return factor;
  }

  // Returns the time of making `depth` drafts of each answer ahead: the first pass follows, and
  // each is one layer of 24 and the head.
  double passes_us(int depth) const {
    const double layer_us = run_.machine.step_us(num_answers(), total_keys()) / 24;
    return layer_us * std::max(1, depth) + 0.5 * layer_us * depth;
  }

  DraftRun run_;
  std::vector<TokenId> tokens_;
  std::vector<size_t> lengths_;  // by answer
  std::vector<GateAnswer> answers_;
  int num_running_;
  ChanceDrafter *drafter_ = nullptr, *free_ = nullptr;  // gate_ owns them
  std::optional<SpeculationGate> gate_;
  DraftOverlap overlap_{false};
  // The step under way.
  SpeculationGate::Step step_;
  StepResult taken_;
  bool overlaps_ = false;
  int num_steps_ = 0, last_drafts_ = 0;
  double speed_ = 0;      // logarithm of the factor by which all steps take longer
  bool is_slow_ = false;  // the speed is half of it
  std::mt19937 rng_;
};

}  // namespace hocket::testing
