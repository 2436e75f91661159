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
void SpeculationGate::list(Among among, std::span<const GateAnswer> answers, int most_rows) {
  const int most = options_.fixed ? *options_.fixed : options_.most_drafts;
  for (size_t i = 0; i < possible_.size(); ++i) {
    PossibleDrafts& possible = possible_[i];
    const int room = std::clamp(answers[possible.answer].most, 0, most);
    const auto made = [room](const DraftTask& task) {
      return std::min(room, static_cast<int>(task.drafts.size()));
    };
    possible.task = &tasks_[i], possible.is_ahead = is_ahead();
    possible.num = are_at_hand() ? made(tasks_[i]) : room;
    if (among == Among::next)
      possible.num = options_.drafter->follows(tasks_[i].seat)
                         ? std::min(room, options_.drafter->most_drafts())
                         : 0;
    if (options_.free == nullptr) continue;
    const int num_free = made(free_tasks_[i]);
    if (among == Among::free ||
        expected_of(free_tasks_[i], num_free) > expected_of(tasks_[i], possible.num))
      possible = {possible.answer, &free_tasks_[i], false, num_free};
  }
  list_candidates(most_rows);
}

// The likeliest drafts come first. Of numbers whose costs are measured together, the largest is a
// candidate.
void SpeculationGate::list_candidates(int most_rows) {
  levels_.fill({});
  candidates_.clear();
  for (size_t i = 0; i < possible_.size(); ++i) {
    const DraftTask& task = *possible_[i].task;
    double held = 1, hoped = 1;
    for (int j = 0; j < possible_[i].num; ++j) {
      const double share = acceptance_.of(task.seat, task.kind, j);
      held *= share;
      hoped *= std::min(share + acceptance_.doubt(task.kind, j), 1.0);
      const auto level = static_cast<uint8_t>(held * (kLevels - 1));
      possible_[i].levels[static_cast<size_t>(j)] = level;
      Level& at = levels_[level];
      ++at.num, at.held += held, at.hoped += hoped;
    }
  }
  Candidate sum;
  for (int i = kLevels - 1; i >= 0 && sum.num_drafts < most_rows; --i) {
    const Level& at = levels_[static_cast<size_t>(i)];
    if (at.num == 0) continue;
    const int num = std::min(at.num, most_rows - sum.num_drafts);
    const double part = static_cast<double>(num) / at.num;
    sum = {sum.num_drafts + num, sum.held + part * at.held, sum.hoped + part * at.hoped};
    const bool is_new = candidates_.empty() || DraftCosts::cell_of(candidates_.back().num_drafts) !=
                                                   DraftCosts::cell_of(sum.num_drafts);
    if (is_new) candidates_.push_back(sum);
    candidates_.back() = sum;
  }
}

SpeculationGate::Judged SpeculationGate::judge(const Bucket& bucket, Making making, int num_answers,
                                               const Candidate& candidate) const {
  Judged out{.num_drafts = candidate.num_drafts};
  out.cost = bucket.way(making).costs.of(candidate.num_drafts);
  // Time is worth the tokens that it usually brings.
  const double worth = std::max(1.0, bucket.tokens_mean / bucket.time_ratio_mean);
  const double hoped_ratio = std::max(1.0, out.cost.time_ratio * (1 - out.cost.doubt));
  out.tokens = 1 + candidate.held / num_answers;
  const double prompts =
      making == Making::ahead ? prompts_cost_ / (prompts_steps_ + kGate.prompts_steps) : 0;
  out.gain = out.tokens - 1 - worth * (out.cost.time_ratio - 1 + prompts);
  out.hoped = candidate.hoped / num_answers - worth * (hoped_ratio - 1 + prompts);
  out.needed = bucket.way(making).usual.num_drafts > 0
                   ? kGate.keep_gain
                   : kGate.begin_gain + kGate.errors * worth * out.cost.time_ratio * out.cost.error;
  return out;
}

// Returns the number that is worth most, none included, and the best of the others. other_gain: as
// in choose().
std::pair<SpeculationGate::Judged, SpeculationGate::Judged> SpeculationGate::judge_all(
    const Bucket& bucket, Making making, int num_answers, double other_gain) const {
  Judged usual{.gain = other_gain}, best;
  for (const Candidate& candidate : candidates_) {
    const Judged judged = judge(bucket, making, num_answers, candidate);
    if (best.num_drafts == 0 || judged.gain > best.gain) best = judged;
    if (judged.cost.is_near && judged.gain > std::max(judged.needed, usual.gain)) usual = judged;
  }
  return {usual, best};
}

// Chooses a number of drafts of all answers together, none included, and notes the choice. It has
// to gain more than other_gain, which can be had otherwise.
SpeculationGate::Judged SpeculationGate::choose(Bucket& bucket, Making making, int num_answers,
                                                double other_gain) {
  const auto note_choice = [&bucket](const Judged& chosen) {
    bucket.tokens_mean += kGate.value_rate * (chosen.tokens - bucket.tokens_mean);
    bucket.time_ratio_mean += kGate.value_rate * (chosen.cost.time_ratio - bucket.time_ratio_mean);
  };
  const bool is_other_noted = making == Making::ahead && options_.free != nullptr;
  // A step in which nothing can be drafted is no choice, but its time counts.
  if (candidates_.empty()) {
    if (!is_other_noted) note_choice({});
    return {};
  }
  if (bucket.num_plain() < kGate.few) return {};
  auto [usual, best] = judge_all(bucket, making, num_answers, other_gain);
  const auto as_choice = [](const Judged& judged) {
    return GateChoice{judged.num_drafts, judged.tokens, judged.cost.time_ratio,
                      judged.cost.num_measured};
  };
  const int tried = try_one(bucket, making, usual, num_answers);
  Way& way = bucket.way(making);
  way.usual = as_choice(usual), way.best = as_choice(best);
  if (is_trial_)
    usual.num_drafts = tried;
  else if (usual.num_drafts > 0 || !is_other_noted)
    note_choice(usual);
  return usual;
}

// Returns true if the time without drafts is to be measured again. Where drafts were made ahead no
// other step shows it, and if the machine became faster drafts seem to gain what it gained.
bool SpeculationGate::is_plain_old(const Bucket& bucket, Making making) const {
  if (bucket.num_plain() < kGate.few) return true;
  const uint64_t since = bucket.num_steps - bucket.last_plain;
  return making == Making::ahead &&
         since >= std::clamp(bucket.num_steps / 2, kGate.first_plain_age, kGate.plain_age);
}

// Sets is_trial_ and returns the number to try, if the step is for a trial. A number is worth a
// trial if it could be better than the usual one. None is tried if it is not known any more.
int SpeculationGate::try_one(Bucket& bucket, Making making, const Judged& usual, int num_answers) {
  const int most = candidates_.back().num_drafts;
  if (pace_.proposes() && trial_of_ == &bucket && trial_making_ == making) {
    pace_.propose();
    is_trial_ = true;
    return std::min(trial_drafts_, most);
  }
  if (!pace_.may_begin(true)) return 0;
  if (options_.free != nullptr && trial_making_ == making && ++num_left_ <= kGate.steps_left)
    return 0;
  const bool shows_plain =
      (usual.num_drafts > 0 || making == Making::ahead) && is_plain_old(bucket, making);
  if (credit_ <= 0 && !shows_plain) return 0;
  const bool is_now = making == Making::now;
  const double least_share = is_now ? kGate.credit_in_trial : kGate.credit_in_trial_ahead;
  const double most_share = is_now ? kGate.credit_in_hopeful_trial : least_share;
  double most_hoped = usual.gain + kGate.certain;
  int tried = -1;
  bool is_promising = false;
  for (const Candidate& candidate : candidates_) {
    const Judged judged = judge(bucket, making, num_answers, candidate);
    const double loss = judged.cost.time_ratio - judged.tokens;
    const double share = std::clamp(judged.hoped - usual.gain, least_share, most_share);
    if (candidate.num_drafts == usual.num_drafts || judged.hoped <= most_hoped ||
        TrialPace::kSteps * loss > share * credit_)
      continue;
    most_hoped = judged.hoped, tried = candidate.num_drafts;
    is_promising =
        is_now && judged.cost.num_measured < kGate.few && most_hoped - usual.gain > kGate.large_gain;
  }
  if (shows_plain) tried = 0;
  if (tried < 0 || !pace_.may_begin(is_promising || bucket.way(making).trials_left > 0)) return 0;
  pace_.begin();
  num_left_ = 0;
  trial_of_ = &bucket, trial_making_ = making, trial_drafts_ = tried, is_trial_ = true;
  return tried;
}

// Sets for each answer how many of the likeliest drafts are its own.
void SpeculationGate::deal(int num_drafts) {
  int last = kLevels, left = num_drafts;  // so many drafts of the level `last` are left
  if (!options_.fixed)
    while (last > 0 && left > 0) {
      const int num = levels_[static_cast<size_t>(last - 1)].num;
      --last;
      if (num >= left) break;
      left -= num;
    }
  for (size_t i = 0; i < possible_.size(); ++i) {
    int chosen = 0;
    for (; chosen < possible_[i].num; ++chosen) {
      const int level = options_.fixed ? last : possible_[i].levels[static_cast<size_t>(chosen)];
      if (level < last || (level == last && left == 0)) break;
      left -= level == last ? 1 : 0;
    }
    possible_[i].num = chosen;
  }
}

}  // namespace hocket
