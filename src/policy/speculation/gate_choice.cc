// The part of the gate that chooses: the drafts that there could be, their gains, and trials.
#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/speculation/speculation_gate.h"

namespace hocket {

// Returns how many of the first `num` drafts are expected to hold.
double SpeculationGate::expected_of(const DraftTask& task, int num) const {
  double held = 1, sum = 0;
  for (int i = 0; i < num; ++i) sum += held *= acceptance_.of(task.seat, task.kind, i);
  return sum;
}

// Lists the drafts that each answer could have, and the candidates. Where there are two drafters it
// takes those of which more are expected to hold.
void SpeculationGate::list(DraftSet set, std::span<const GateAnswer> answers, int max_rows) {
  const int most = options_.fixed ? *options_.fixed : options_.max_drafts;
  for (size_t i = 0; i < possible_.size(); ++i) {
    PossibleDrafts& possible = possible_[i];
    const int room = std::clamp(answers[possible.answer].most, 0, most);
    const auto made = [room](const DraftTask& task) {
      return std::min(room, static_cast<int>(task.drafts.size()));
    };
    possible.task = &tasks_[i], possible.is_ahead = is_ahead();
    possible.num = are_at_hand() ? made(tasks_[i]) : room;
    if (set == DraftSet::next_step)
      possible.num = options_.drafter->follows(tasks_[i].seat)
                         ? std::min(room, options_.drafter->max_drafts())
                         : 0;
    if (options_.free == nullptr) continue;
    const int num_free = made(free_tasks_[i]);
    if (set == DraftSet::free ||
        expected_of(free_tasks_[i], num_free) > expected_of(tasks_[i], possible.num))
      possible = {possible.answer, &free_tasks_[i], false, num_free};
  }
  list_candidates(max_rows);
}

// The likeliest drafts come first. Where the costs of several numbers are measured together, the
// largest number is a candidate.
void SpeculationGate::list_candidates(int max_rows) {
  levels_.fill({});
  candidates_.clear();
  for (size_t i = 0; i < possible_.size(); ++i) {
    const DraftTask& task = *possible_[i].task;
    double held = 1, best_case = 1;
    for (int j = 0; j < possible_[i].num; ++j) {
      const double share = acceptance_.of(task.seat, task.kind, j);
      held *= share;
      best_case *= std::min(share + acceptance_.doubt(task.kind, j), 1.0);
      const auto level = static_cast<uint8_t>(held * (kLevels - 1));
      possible_[i].levels[static_cast<size_t>(j)] = level;
      Level& at = levels_[level];
      ++at.num, at.held += held, at.best_case += best_case;
    }
  }
  Candidate sum;
  for (int i = kLevels - 1; i >= 0 && sum.num_drafts < max_rows; --i) {
    const Level& at = levels_[static_cast<size_t>(i)];
    if (at.num == 0) continue;
    const int num = std::min(at.num, max_rows - sum.num_drafts);
    const double part = static_cast<double>(num) / at.num;
    sum = {sum.num_drafts + num, sum.held + part * at.held, sum.best_case + part * at.best_case};
    const bool is_new = candidates_.empty() || DraftCosts::cell_of(candidates_.back().num_drafts) !=
                                                   DraftCosts::cell_of(sum.num_drafts);
    if (is_new) candidates_.push_back(sum);
    candidates_.back() = sum;
  }
}

// Time is worth the tokens that it usually brings.
double SpeculationGate::worth_of(const Bucket& bucket) {
  return std::max(1.0, bucket.tokens_mean / bucket.time_ratio_mean);
}

SpeculationGate::Estimate SpeculationGate::judge(const Bucket& bucket, DraftTiming timing,
                                                 int num_answers,
                                                 const Candidate& candidate) const {
  const TimingState& way = bucket.way(timing);
  Estimate out{.num_drafts = candidate.num_drafts, .cost = way.costs.of(candidate.num_drafts)};
  const double error = way.costs.error_between(candidate.num_drafts, way.usual.num_drafts);
  const double worth = worth_of(bucket), ratio = out.cost.time_ratio;
  const double best_ratio = std::max(1.0, ratio * std::exp(-kGate.trial_errors * error));
  out.tokens = 1 + candidate.held / num_answers;
  const double prompts =
      timing == DraftTiming::ahead ? prompts_cost_ / (prompts_steps_ + kGate.prompts_steps) : 0;
  out.gain = out.tokens - 1 - worth * (ratio - 1 + prompts);
  out.best_case = candidate.best_case / num_answers - worth * (best_ratio - 1 + prompts);
  out.worst_case = out.gain - kGate.errors * worth * ratio * error;
  return out;
}

// Returns the number that is surely worth most, none included, and the best of the others.
// other_gain: as in choose().
std::pair<SpeculationGate::Estimate, SpeculationGate::Estimate> SpeculationGate::judge_all(
    const Bucket& bucket, DraftTiming timing, int num_answers, double other_gain) const {
  const bool goes_on = bucket.way(timing).usual.num_drafts > 0;
  Estimate usual{.gain = other_gain, .worst_case = other_gain}, best;
  for (const Candidate& candidate : candidates_) {
    const Estimate judged = judge(bucket, timing, num_answers, candidate);
    if (best.num_drafts == 0 || judged.gain > best.gain) best = judged;
    const double needed = std::max(goes_on ? kGate.keep_gain : kGate.begin_gain, usual.worst_case);
    if (judged.worst_case > needed) usual = judged;
  }
  return {usual, best};
}

// Chooses a number of drafts of all answers together, none included, and notes the choice. It has
// to gain more than other_gain, which can be had otherwise.
SpeculationGate::Estimate SpeculationGate::choose(Bucket& bucket, DraftTiming timing,
                                                  int num_answers, double other_gain) {
  const auto note_choice = [&bucket](const Estimate& chosen) {
    bucket.tokens_mean += kGate.value_rate * (chosen.tokens - bucket.tokens_mean);
    bucket.time_ratio_mean += kGate.value_rate * (chosen.cost.time_ratio - bucket.time_ratio_mean);
  };
  const bool is_other_noted = timing == DraftTiming::ahead && options_.free != nullptr;
  // A step in which nothing can be drafted is no choice, but its time counts.
  if (candidates_.empty()) {
    if (!is_other_noted) note_choice({});
    return {};
  }
  if (bucket.num_plain() < kGate.few_plain) return {};
  auto [usual, best] = judge_all(bucket, timing, num_answers, other_gain);
  const auto as_choice = [](const Estimate& judged) {
    return GateChoice{judged.num_drafts, judged.tokens, judged.cost.time_ratio,
                      judged.cost.num_measured};
  };
  const int tried = try_one(bucket, timing, usual, num_answers);
  TimingState& way = bucket.way(timing);
  way.usual = as_choice(usual), way.best = as_choice(best);
  if (is_trial_)
    usual.num_drafts = tried;
  else if (usual.num_drafts > 0 || !is_other_noted)
    note_choice(usual);
  return usual;
}

// Returns true if the time without drafts is to be measured again. While drafts are played no other
// step shows it, and if the machine became faster drafts seem to gain what it gained.
bool SpeculationGate::is_plain_old(const Bucket& bucket, DraftTiming timing,
                                   const Estimate& usual) const {
  if (bucket.num_plain() < kGate.few_plain) return true;
  if (usual.num_drafts == 0 && timing == DraftTiming::now) return false;
  const auto since = static_cast<double>(bucket.num_steps - bucket.last_plain);
  const auto young = static_cast<double>(bucket.num_steps) / 2;
  if (usual.num_drafts == 0)
    return since >= std::clamp(young, kGate.first_rest_age, kGate.max_plain_age);
  const double lost = std::max(0.0, usual.gain) / (1 + std::max(0.0, usual.gain));
  const double rare = std::min(TrialPace::kSteps * lost / kGate.plain_share, young);
  return since >= std::clamp(rare, kGate.least_plain_age, kGate.max_plain_age);
}

// Returns the number to try; -1: none. It promises most for what it may lose.
SpeculationGate::TrialCandidate SpeculationGate::most_promising(const Bucket& bucket,
                                                                DraftTiming timing,
                                                                const Estimate& usual,
                                                                int num_answers) const {
  const double share =
      timing == DraftTiming::ahead ? kGate.credit_in_trial_ahead : kGate.credit_in_trial;
  TrialCandidate out;
  double best = 0;
  for (const Candidate& candidate : candidates_) {
    const Estimate judged = judge(bucket, timing, num_answers, candidate);
    const double gain = judged.best_case - usual.gain;
    const double loss = std::max(0.0, usual.gain - judged.gain);
    if (DraftCosts::cell_of(candidate.num_drafts) == DraftCosts::cell_of(usual.num_drafts) ||
        gain <= kGate.least_trial_gain || kGate.steps_if_lost * loss > share * credit_)
      continue;
    const double value = gain / (loss + kGate.least_loss);
    if (value > best)
      best = value, out = {candidate.num_drafts, gain, judged.cost.num_measured < kGate.few};
  }
  return out;
}

// Sets is_trial_ and returns the number to try, if the step is for a trial. A trial that has shown
// to lose ends early.
int SpeculationGate::try_one(Bucket& bucket, DraftTiming timing, const Estimate& usual,
                             int num_answers) {
  const int most = candidates_.back().num_drafts;
  if (pace_.proposes() && trial_of_ == &bucket && trial_timing_ == timing) {
    const int tried = std::min(trial_drafts_, most);
    if (tried == 0 || pace_.is_cold() || may_gain(bucket, timing, usual, num_answers, tried)) {
      pace_.propose();
      is_trial_ = true;
      return tried;
    }
    pace_.stop();
  }
  if (!pace_.may_begin(true)) return 0;
  if (options_.free != nullptr && trial_timing_ == timing && ++num_yielded_ <= kGate.yield_steps)
    return 0;
  const bool shows_plain = is_plain_old(bucket, timing, usual);
  if (credit_ <= 0 && !shows_plain) return 0;
  const TrialCandidate promise = shows_plain ? TrialCandidate{.num_drafts = 0}
                                             : most_promising(bucket, timing, usual, num_answers);
  const bool is_frequent = bucket.way(timing).num_remaining_trials > 0 || shows_plain ||
                           (promise.gain > kGate.large_gain * (1 + usual.gain) &&
                            (promise.is_new || usual.num_drafts > 0));
  if (promise.num_drafts < 0 || !pace_.may_begin(is_frequent)) return 0;
  pace_.begin();
  num_yielded_ = 0;
  trial_of_ = &bucket, trial_timing_ = timing, trial_drafts_ = promise.num_drafts;
  is_trial_ = true;
  return trial_drafts_;
}

// Returns true if the number under trial may still turn out to be better than the usual one.
bool SpeculationGate::may_gain(const Bucket& bucket, DraftTiming timing, const Estimate& usual,
                               int num_answers, int num_drafts) const {
  const auto at = std::ranges::lower_bound(candidates_, num_drafts, {}, &Candidate::num_drafts);
  return at == candidates_.end() ||
         judge(bucket, timing, num_answers, *at).best_case > usual.gain + kGate.least_trial_gain;
}

// Sets for each answer how many of the likeliest drafts are its own.
void SpeculationGate::assign_drafts(int num_drafts) {
  int last = kLevels, remaining = num_drafts;  // so many drafts of the level `last` are left
  if (!options_.fixed)
    while (last > 0 && remaining > 0) {
      const int num = levels_[static_cast<size_t>(last - 1)].num;
      --last;
      if (num >= remaining) break;
      remaining -= num;
    }
  for (size_t i = 0; i < possible_.size(); ++i) {
    int chosen = 0;
    for (; chosen < possible_[i].num; ++chosen) {
      const int level = options_.fixed ? last : possible_[i].levels[static_cast<size_t>(chosen)];
      if (level < last || (level == last && remaining == 0)) break;
      remaining -= level == last ? 1 : 0;
    }
    possible_[i].num = chosen;
  }
}

}  // namespace hocket
