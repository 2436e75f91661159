#include "policy/speculation/speculation_gate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "policy/speculation/gate_text.h"

namespace hocket {
namespace {

// Returns the smallest power of two, or 1.5 times one, that is not below n.
int answers_border(int n) {
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n, 1))));
  return power >= 4 && n <= power / 4 * 3 ? power / 4 * 3 : power;
}

int64_t keys_border(int64_t keys_an_answer) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(keys_an_answer, kGate.few_keys))));
}

}  // namespace

SpeculationGate::SpeculationGate(Options options)
    : options_(std::move(options)),
      acceptance_(options_.num_seats),
      buckets_(static_cast<size_t>(kGate.most_buckets)),
      watched_(static_cast<size_t>(options_.num_seats)),
      kinds_(static_cast<size_t>(options_.num_seats)) {
  HOCKET_CHECK(options_.drafter != nullptr);
  HOCKET_CHECK((options_.most_drafts >= 1 && options_.most_drafts <= kMostDrafts));
  tasks_.reserve(watched_.size());
  possible_.reserve(watched_.size());
  candidates_.reserve(DraftCosts::kNumCells + 1);
}

void SpeculationGate::begin(int seat, int most_len) {
  options_.drafter->begin(seat, most_len);
  acceptance_.begin(seat);
  watched_[static_cast<size_t>(seat)] = {};
}

void SpeculationGate::end(int seat) {
  options_.drafter->end(seat);
}

// Returns the bucket of the size; if there is none, the one that was used longest ago begins anew.
SpeculationGate::Bucket& SpeculationGate::bucket_for(int num_answers, int64_t total_keys) {
  const int border = answers_border(num_answers);
  const int64_t border_keys = keys_border(total_keys / std::max(num_answers, 1));
  auto found = std::ranges::find_if(buckets_, [&](const Bucket& bucket) {
    return bucket.num_answers == border && bucket.answer_keys == border_keys;
  });
  if (found == buckets_.end()) {
    found = std::ranges::min_element(buckets_, {}, &Bucket::last_used);
    if (trial_of_ == &*found) trial_of_ = nullptr;
    *found = {.num_answers = border, .answer_keys = border_keys};
    found->costs.begin(border, growth_);
  }
  found->last_used = ++clock_;
  return *found;
}

void SpeculationGate::offer(int64_t total_keys, std::span<GateAnswer> answers, int most_rows) {
  HOCKET_CHECK(answers.size() <= watched_.size());
  is_trial_ = false;
  make_drafts(answers);
  const auto num_answers = static_cast<int>(answers.size());
  if (options_.fixed) return share_out(std::max(most_rows, 0), answers);
  Bucket& bucket = bucket_for(num_answers, total_keys);
  list_candidates(most_rows);
  if (!options_.drafter->is_ahead()) return share_out(choose(bucket, num_answers), answers);
  share_out(std::min(next_.num_drafts, std::max(most_rows, 0)), answers);
  choose_ahead(bucket, answers, most_rows);
}

SpeculationGate::Ahead SpeculationGate::ahead() const {
  return options_.fixed ? Ahead{.depth = *options_.fixed} : next_.ahead;
}

// Chooses for the step after the one that is being offered, as if it had the same answers and they
// as much room. The drafter rests in steps that are to show the time without it. In others it makes
// one draft at least: whether that holds is seen without its row.
void SpeculationGate::choose_ahead(Bucket& bucket, std::span<const GateAnswer> answers,
                                   int most_rows) {
  const bool is_trial = next_.is_trial;
  for (PossibleDrafts& possible : possible_) {
    const GateAnswer& answer = answers[possible.answer];
    const bool follows = options_.drafter->follows(answer.seat);
    possible.num = follows ? std::clamp(answer.most, 0, options_.most_drafts) : 0;
  }
  list_candidates(most_rows);
  next_.num_drafts = choose(bucket, static_cast<int>(answers.size()));
  next_.is_trial = std::exchange(is_trial_, is_trial);
  const bool is_shown = next_.is_trial || bucket.costs.num_plain() < kGate.few;
  const bool follows = next_.num_drafts > 0 || (!rests_ && !is_shown);
  next_.ahead = {.follows = follows, .depth = follows ? 1 : 0};
  deal(next_.num_drafts);
  for (const PossibleDrafts& possible : possible_)
    next_.ahead.depth = std::max(next_.ahead.depth, possible.num);
}

// Lists the drafts that each answer could have. Those that are at hand are taken here: a free
// drafter's, which are made now, and those that were made ahead. Earlier ones are compared with the
// tokens that have come since.
void SpeculationGate::make_drafts(std::span<GateAnswer> answers) {
  tasks_.clear(), possible_.clear();
  const int most = options_.fixed ? *options_.fixed : options_.most_drafts;
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].drafts = {};
    if (answers[i].seat < 0) continue;
    const int room = std::clamp(answers[i].most, 0, most);
    tasks_.push_back({.seat = answers[i].seat, .tokens = answers[i].tokens, .most = most});
    possible_.push_back({.answer = i, .num = room});
  }
  if (!are_at_hand()) return;
  options_.drafter->draft(tasks_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    possible_[i].num = std::min(possible_[i].num, static_cast<int>(tasks_[i].drafts.size()));
    compare(watched_[static_cast<size_t>(tasks_[i].seat)], tasks_[i]);
  }
}

// Once all or one that did not hold have been seen, the new drafts take their place.
void SpeculationGate::compare(WatchedDrafts& watched, const DraftTask& task) {
  HOCKET_CHECK(task.tokens.size() >= watched.at);
  const auto come = task.tokens.subspan(watched.at);
  const auto num_known = std::min<size_t>(come.size(), static_cast<size_t>(watched.num));
  const auto num_held = static_cast<size_t>(
      std::ranges::mismatch(come.first(num_known), std::span(watched.tokens).first(num_known)).in1 -
      come.begin());
  if (num_held == num_known && static_cast<int>(num_known) < watched.num) return;
  if (watched.num > 0)
    acceptance_.note(task.seat, watched.kind, watched.num, static_cast<int>(num_held));
  watched.num = static_cast<int>(task.drafts.size());
  watched.kind = task.kind;
  watched.at = task.tokens.size();
  std::ranges::copy(task.drafts, watched.tokens.begin());
}

// The likeliest drafts come first. Of numbers whose costs are measured together, the largest is a
// candidate.
void SpeculationGate::list_candidates(int most_rows) {
  levels_.fill({});
  candidates_.clear();
  for (size_t i = 0; i < possible_.size(); ++i) {
    double held = 1, hoped = 1;
    for (int j = 0; j < possible_[i].num; ++j) {
      const double share = acceptance_.of(tasks_[i].seat, tasks_[i].kind, j);
      held *= share;
      hoped *= std::min(share + acceptance_.doubt(tasks_[i].kind, j), 1.0);
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

SpeculationGate::Judged SpeculationGate::judge(const Bucket& bucket, int num_answers,
                                               const Candidate& candidate) const {
  Judged out{.num_drafts = candidate.num_drafts};
  out.cost = bucket.costs.of(candidate.num_drafts);
  // Time is worth the tokens that it usually brings.
  const double worth = std::max(1.0, bucket.tokens_mean / bucket.time_ratio_mean);
  const double hoped_ratio = std::max(1.0, out.cost.time_ratio * (1 - out.cost.doubt));
  out.tokens = 1 + candidate.held / num_answers;
  out.gain = out.tokens - 1 - worth * (out.cost.time_ratio - 1);
  out.hoped = candidate.hoped / num_answers - worth * (hoped_ratio - 1);
  out.needed = bucket.usual.num_drafts > 0
                   ? kGate.keep_gain
                   : kGate.begin_gain + kGate.errors * worth * out.cost.time_ratio * out.cost.error;
  return out;
}

// Returns the number of drafts of all answers together.
int SpeculationGate::choose(Bucket& bucket, int num_answers) {
  const auto note_choice = [&bucket](const Judged& chosen) {
    bucket.tokens_mean += kGate.value_rate * (chosen.tokens - bucket.tokens_mean);
    bucket.time_ratio_mean += kGate.value_rate * (chosen.cost.time_ratio - bucket.time_ratio_mean);
  };
  // A step in which nothing can be drafted is no choice, but its time counts.
  if (candidates_.empty()) return note_choice({}), 0;
  if (bucket.costs.num_plain() < kGate.few) return 0;
  Judged usual, best;
  for (const Candidate& candidate : candidates_) {
    const Judged judged = judge(bucket, num_answers, candidate);
    if (best.num_drafts == 0 || judged.gain > best.gain) best = judged;
    if (judged.cost.is_near && judged.gain > std::max(judged.needed, usual.gain)) usual = judged;
  }
  const auto as_choice = [](const Judged& judged) {
    return GateChoice{judged.num_drafts, judged.tokens, judged.cost.time_ratio,
                      judged.cost.num_measured};
  };
  const int tried = try_one(bucket, usual, num_answers);
  bucket.usual = as_choice(usual), bucket.best = as_choice(best);
  if (is_trial_) return tried;
  note_choice(usual);
  return usual.num_drafts;
}

// Returns true if the time without drafts is to be measured again. Where drafts were made ahead no
// other step shows it, and if the machine became faster drafts seem to gain what it gained.
bool SpeculationGate::is_plain_old(const Bucket& bucket) const {
  if (bucket.costs.num_plain() < kGate.few) return true;
  const uint64_t since = bucket.num_steps - bucket.last_plain;
  return options_.drafter->is_ahead() &&
         since >= std::clamp(bucket.num_steps / 2, kGate.first_plain_age, kGate.plain_age);
}

// Sets is_trial_ and returns the number to try, if the step is for a trial. A number is worth a
// trial if it could be better than the usual one. None is tried if it is not known any more.
int SpeculationGate::try_one(Bucket& bucket, const Judged& usual, int num_answers) {
  const int most = candidates_.back().num_drafts;
  if (pace_.proposes() && trial_of_ == &bucket) {
    pace_.propose();
    is_trial_ = true;
    return std::min(trial_drafts_, most);
  }
  if (!pace_.may_begin(bucket.trials_left > 0)) return 0;
  const bool shows_plain =
      (usual.num_drafts > 0 || options_.drafter->is_ahead()) && is_plain_old(bucket);
  if (credit_ <= 0 && !shows_plain) return 0;
  const double share =
      options_.drafter->is_ahead() ? kGate.credit_in_trial_ahead : kGate.credit_in_trial;
  double most_hoped = usual.gain + kGate.certain;
  int tried = -1;
  for (const Candidate& candidate : candidates_) {
    const Judged judged = judge(bucket, num_answers, candidate);
    const double loss = judged.cost.time_ratio - judged.tokens;
    if (candidate.num_drafts == usual.num_drafts || judged.hoped <= most_hoped ||
        TrialPace::kSteps * loss > share * credit_)
      continue;
    most_hoped = judged.hoped, tried = candidate.num_drafts;
  }
  if (shows_plain) tried = 0;
  if (tried < 0) return 0;
  pace_.begin();
  trial_of_ = &bucket, trial_drafts_ = tried, is_trial_ = true;
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

// Gives the likeliest drafts to their answers, and counts how many of them are expected to hold.
void SpeculationGate::share_out(int num_drafts, std::span<GateAnswer> answers) {
  deal(num_drafts);
  expected_ = 0;
  for (size_t i = 0; i < possible_.size(); ++i) {
    tasks_[i].most = possible_[i].num;
    for (int j = 0; j < possible_[i].num; ++j)
      expected_ += possible_[i].levels[static_cast<size_t>(j)] / (kLevels - 1.0);
  }
  if (!are_at_hand()) options_.drafter->draft(tasks_);
  for (size_t i = 0; i < possible_.size(); ++i) {
    const auto num = std::min(static_cast<size_t>(possible_[i].num), tasks_[i].drafts.size());
    answers[possible_[i].answer].drafts = tasks_[i].drafts.first(num);
    kinds_[static_cast<size_t>(tasks_[i].seat)] = tasks_[i].kind;
  }
}

void SpeculationGate::note_answer(int seat, int num_drafts, int num_held) {
  HOCKET_CHECK((num_held >= 0 && num_held <= num_drafts && num_drafts <= kMostDrafts));
  if (!are_at_hand())
    acceptance_.note(seat, kinds_[static_cast<size_t>(seat)], num_drafts, num_held);
}

void SpeculationGate::note_step(const Step& step) {
  ++totals_.num_steps;
  totals_.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  // Drafts may have been cut, for possible of pages; a trial of none has none, nor is it followed.
  const bool is_plain = step.num_drafts == 0 && !step.follows;
  const bool is_trial = std::exchange(is_trial_, false) && step.is_pure &&
                        (trial_drafts_ > 0 ? step.num_drafts > 0 : is_plain);
  const bool is_cold = is_trial && pace_.is_cold();
  pace_.note(is_trial);
  totals_.num_trial_steps += is_trial ? 1 : 0;
  if (!step.is_pure || step.num_answers <= 0 || !(step.us > 0)) return;

  Bucket& bucket = bucket_for(step.num_answers, step.total_keys);
  ++bucket.num_steps;
  bucket.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  if (is_trial) ++bucket.num_trial_steps, --bucket.trials_left;
  if (bucket.num_steps % static_cast<uint64_t>(kGate.ageing) == 0) bucket.costs.age();
  const StepShape shape{.decode_rows = step.num_answers, .keys = step.total_keys};
  if (is_plain) {
    bucket.last_plain = bucket.num_steps;
    note_plain(bucket, shape, step.us);
  }
  const double reference_us = to_us(plain_times_.predict(shape));
  if (reference_us <= 0) return;
  if (!is_cold && (is_plain || step.num_drafts > 0))
    bucket.costs.note(step.num_drafts, step.us / reference_us);
  growth_ = bucket.costs.growth();
  bucket.plain_us = reference_us * bucket.costs.plain();
  credit_ = std::min(credit_ + kGate.credit_share, kGate.first_credit);
  if (!is_plain && bucket.plain_us > 0) note_gain(bucket, step, is_trial);
  rests_ = credit_ <= 0 || (rests_ && credit_ < kGate.credit_to_follow);
}

// Books the time that a step has gained or lost. Trials, and rows that were computed for later
// drafts, pay out of the credit. Drafts that were made ahead for the usual steps pay into it, so
// that those who gain may go on a while where they do not. Of them the credit counts those that
// were expected to hold, because a run of bad luck would end their making for long.
void SpeculationGate::note_gain(const Bucket& bucket, const Step& step, bool is_trial) {
  const double tokens = static_cast<double>(step.num_tokens) / step.num_answers;
  const double gained_us = bucket.plain_us * (step.num_drafts > 0 ? tokens : 1) - step.us;
  totals_.gained_us += gained_us;
  const bool is_usual = !is_trial && step.num_drafts > 0, is_ahead = options_.drafter->is_ahead();
  if (is_usual && !is_ahead) return;
  if (!is_usual) totals_.trial_us += gained_us;
  const double gain = is_ahead ? 1 + expected_ / step.num_answers - step.us / bucket.plain_us
                               : gained_us / bucket.plain_us;
  credit_ = std::clamp(credit_ + gain, kGate.least_credit, kGate.first_credit);
}

// The first steps of a size may be slow for reasons of their own, and the fit would take very long
// to forget them, so it begins behind them and no step counts as much slower than those before it.
void SpeculationGate::note_plain(Bucket& bucket, const StepShape& shape, double us) {
  bucket.plain_steps.add(static_cast<float>(us));
  if (bucket.plain_steps.count() < kGate.few) return;
  const double counted = std::min(us, kGate.most_off * bucket.plain_steps.median());
  plain_times_.note(shape, Duration(std::llround(counted * 1e3)));
}

GateState SpeculationGate::state() const {
  GateState out{.totals = totals_, .is_fixed = options_.fixed.has_value()};
  for (const Bucket& bucket : buckets_) {
    if (bucket.num_answers == 0 || bucket.num_steps == 0) continue;
    GateState::Bucket copy{.num_answers = bucket.num_answers,
                           .answer_keys = bucket.answer_keys,
                           .num_steps = bucket.num_steps,
                           .num_draft_steps = bucket.num_draft_steps,
                           .num_trial_steps = bucket.num_trial_steps,
                           .usual = bucket.usual,
                           .best = bucket.best,
                           .plain_us = bucket.plain_us};
    copy.text = text_of(copy, out.is_fixed);
    out.buckets.push_back(std::move(copy));
  }
  std::ranges::sort(out.buckets, {}, [](const GateState::Bucket& each) {
    return std::tuple(each.num_answers, each.answer_keys);
  });
  for (int kind = 0; kind < kDraftKinds; ++kind)
    for (int i = 0; i < kMostDrafts; ++i) {
      const auto row = static_cast<size_t>(kind), at = static_cast<size_t>(i);
      out.acceptance[row][at] = acceptance_.of_group(kind, i);
      out.num_seen[row][at] = acceptance_.num_seen(kind, i);
    }
  return out;
}

}  // namespace hocket
