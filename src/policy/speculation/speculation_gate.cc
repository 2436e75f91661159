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
      records_(static_cast<size_t>(kGate.most_records)),
      peeks_(static_cast<size_t>(options_.num_seats)),
      kinds_(static_cast<size_t>(options_.num_seats)) {
  HOCKET_CHECK(options_.drafter != nullptr);
  HOCKET_CHECK((options_.most_drafts >= 1 && options_.most_drafts <= kMostDrafts));
  asks_.reserve(peeks_.size());
  wants_.reserve(peeks_.size());
  candidates_.reserve(DraftCosts::kNumCells + 1);
}

void SpeculationGate::begin(int seat, int most_len) {
  options_.drafter->begin(seat, most_len);
  acceptance_.begin(seat);
  peeks_[static_cast<size_t>(seat)] = {};
}

void SpeculationGate::end(int seat) {
  options_.drafter->end(seat);
}

// Returns the record of the size; if there is none, the one that was used longest ago begins anew.
SpeculationGate::Record& SpeculationGate::record_for(int num_answers, int64_t keys) {
  const int answers = answers_border(num_answers);
  const int64_t border = keys_border(keys / std::max(num_answers, 1));
  auto found = std::ranges::find_if(records_, [&](const Record& record) {
    return record.num_answers == answers && record.keys == border;
  });
  if (found == records_.end()) {
    found = std::ranges::min_element(records_, {}, &Record::last_used);
    if (trial_of_ == &*found) trial_of_ = nullptr;
    *found = {.num_answers = answers, .keys = border};
    found->costs.begin(answers, growth_);
  }
  found->last_used = ++clock_;
  return *found;
}

void SpeculationGate::offer(int64_t keys, std::span<GateAsk> asks, int most_rows) {
  HOCKET_CHECK(asks.size() <= peeks_.size());
  is_trial_ = false;
  make_drafts(asks);
  const auto num_answers = static_cast<int>(asks.size());
  if (options_.fixed) return share_out(std::max(most_rows, 0), asks);
  Record& record = record_for(num_answers, keys);
  list_candidates(most_rows);
  if (!options_.drafter->is_ahead()) return share_out(choose(record, num_answers), asks);
  share_out(std::min(next_.num_drafts, std::max(most_rows, 0)), asks);
  choose_ahead(record, asks, most_rows);
}

SpeculationGate::Ahead SpeculationGate::ahead() const {
  return options_.fixed ? Ahead{.depth = *options_.fixed} : next_.ahead;
}

// Chooses for the step after the one that is being offered, as if it had the same answers and they
// as much room. The drafter rests in steps that are to show the time without it. In others it makes
// one draft at least: whether that holds is seen without its row.
void SpeculationGate::choose_ahead(Record& record, std::span<const GateAsk> asks, int most_rows) {
  const bool is_trial = next_.is_trial;
  for (Want& want : wants_) {
    const GateAsk& ask = asks[want.ask];
    const bool follows = options_.drafter->follows(ask.seat);
    want.num = follows ? std::clamp(ask.most, 0, options_.most_drafts) : 0;
  }
  list_candidates(most_rows);
  next_.num_drafts = choose(record, static_cast<int>(asks.size()));
  next_.is_trial = std::exchange(is_trial_, is_trial);
  const bool is_shown = next_.is_trial || record.costs.num_plain() < kGate.few;
  const bool follows = next_.num_drafts > 0 || (!rests_ && !is_shown);
  next_.ahead = {.follows = follows, .depth = follows ? 1 : 0};
  deal(next_.num_drafts);
  for (const Want& want : wants_) next_.ahead.depth = std::max(next_.ahead.depth, want.num);
}

// Lists the drafts that each answer could have. Those that are at hand are taken here: a free
// drafter's, which are made now, and those that were made ahead. Earlier ones are compared with the
// tokens that have come since.
void SpeculationGate::make_drafts(std::span<GateAsk> asks) {
  asks_.clear(), wants_.clear();
  const int most = options_.fixed ? *options_.fixed : options_.most_drafts;
  for (size_t i = 0; i < asks.size(); ++i) {
    asks[i].drafts = {};
    if (asks[i].seat < 0) continue;
    const int room = std::clamp(asks[i].most, 0, most);
    asks_.push_back({.seat = asks[i].seat, .tokens = asks[i].tokens, .most = most});
    wants_.push_back({.ask = i, .num = room});
  }
  if (!are_at_hand()) return;
  options_.drafter->draft(asks_);
  for (size_t i = 0; i < asks_.size(); ++i) {
    wants_[i].num = std::min(wants_[i].num, static_cast<int>(asks_[i].drafts.size()));
    compare(peeks_[static_cast<size_t>(asks_[i].seat)], asks_[i]);
  }
}

// Once all or one that did not hold have been seen, the new drafts take their place.
void SpeculationGate::compare(Peek& peek, const DraftAsk& ask) {
  HOCKET_CHECK(ask.tokens.size() >= peek.at);
  const auto come = ask.tokens.subspan(peek.at);
  const auto num_known = std::min<size_t>(come.size(), static_cast<size_t>(peek.num));
  const auto num_held = static_cast<size_t>(
      std::ranges::mismatch(come.first(num_known), std::span(peek.tokens).first(num_known)).in1 -
      come.begin());
  if (num_held == num_known && static_cast<int>(num_known) < peek.num) return;
  if (peek.num > 0) acceptance_.note(ask.seat, peek.kind, peek.num, static_cast<int>(num_held));
  peek.num = static_cast<int>(ask.drafts.size());
  peek.kind = ask.kind;
  peek.at = ask.tokens.size();
  std::ranges::copy(ask.drafts, peek.tokens.begin());
}

// The likeliest drafts come first. Of numbers whose costs are measured together, the largest is a
// candidate.
void SpeculationGate::list_candidates(int most_rows) {
  levels_.fill({});
  candidates_.clear();
  for (size_t i = 0; i < wants_.size(); ++i) {
    double held = 1, hoped = 1;
    for (int j = 0; j < wants_[i].num; ++j) {
      const double share = acceptance_.of(asks_[i].seat, asks_[i].kind, j);
      held *= share;
      hoped *= std::min(share + acceptance_.doubt(asks_[i].kind, j), 1.0);
      const auto level = static_cast<uint8_t>(held * (kLevels - 1));
      wants_[i].levels[static_cast<size_t>(j)] = level;
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

SpeculationGate::Judged SpeculationGate::judge(const Record& record, int num_answers,
                                               const Candidate& candidate) const {
  Judged out{.num_drafts = candidate.num_drafts};
  out.cost = record.costs.of(candidate.num_drafts);
  // Time is worth the tokens that it usually brings.
  const double worth = std::max(1.0, record.tokens_mean / record.times_mean);
  const double hoped_times = std::max(1.0, out.cost.times * (1 - out.cost.doubt));
  out.tokens = 1 + candidate.held / num_answers;
  out.gain = out.tokens - 1 - worth * (out.cost.times - 1);
  out.hoped = candidate.hoped / num_answers - worth * (hoped_times - 1);
  out.needed = record.usual.num_drafts > 0
                   ? kGate.keep_gain
                   : kGate.begin_gain + kGate.errors * worth * out.cost.times * out.cost.error;
  return out;
}

// Returns the number of drafts of all answers together.
int SpeculationGate::choose(Record& record, int num_answers) {
  const auto note_choice = [&record](const Judged& chosen) {
    record.tokens_mean += kGate.value_rate * (chosen.tokens - record.tokens_mean);
    record.times_mean += kGate.value_rate * (chosen.cost.times - record.times_mean);
  };
  // A step in which nothing can be drafted is no choice, but its time counts.
  if (candidates_.empty()) return note_choice({}), 0;
  if (record.costs.num_plain() < kGate.few) return 0;
  Judged usual, best;
  for (const Candidate& candidate : candidates_) {
    const Judged judged = judge(record, num_answers, candidate);
    if (best.num_drafts == 0 || judged.gain > best.gain) best = judged;
    if (judged.cost.is_near && judged.gain > std::max(judged.needed, usual.gain)) usual = judged;
  }
  const auto as_choice = [](const Judged& judged) {
    return GateChoice{judged.num_drafts, judged.tokens, judged.cost.times,
                      judged.cost.num_measured};
  };
  const int tried = try_one(record, usual, num_answers);
  record.usual = as_choice(usual), record.best = as_choice(best);
  if (is_trial_) return tried;
  note_choice(usual);
  return usual.num_drafts;
}

// Returns true if the time without drafts is to be measured again. Where drafts were made ahead no
// other step shows it, and if the machine became faster drafts seem to gain what it gained.
bool SpeculationGate::is_plain_old(const Record& record) const {
  if (record.costs.num_plain() < kGate.few) return true;
  const uint64_t since = record.num_steps - record.last_plain;
  return options_.drafter->is_ahead() &&
         since >= std::clamp(record.num_steps / 2, kGate.first_plain_age, kGate.plain_age);
}

// Sets is_trial_ and returns the number to try, if the step is for a trial. A number is worth a
// trial if it could be better than the usual one. None is tried if it is not known any more.
int SpeculationGate::try_one(Record& record, const Judged& usual, int num_answers) {
  const int most = candidates_.back().num_drafts;
  if (pace_.proposes() && trial_of_ == &record) {
    pace_.propose();
    is_trial_ = true;
    return std::min(trial_drafts_, most);
  }
  if (!pace_.may_begin(record.trials_left > 0)) return 0;
  const bool shows_plain =
      (usual.num_drafts > 0 || options_.drafter->is_ahead()) && is_plain_old(record);
  if (credit_ <= 0 && !shows_plain) return 0;
  const double share =
      options_.drafter->is_ahead() ? kGate.credit_in_trial_ahead : kGate.credit_in_trial;
  double most_hoped = usual.gain + kGate.certain;
  int tried = -1;
  for (const Candidate& candidate : candidates_) {
    const Judged judged = judge(record, num_answers, candidate);
    const double loss = judged.cost.times - judged.tokens;
    if (candidate.num_drafts == usual.num_drafts || judged.hoped <= most_hoped ||
        TrialPace::kSteps * loss > share * credit_)
      continue;
    most_hoped = judged.hoped, tried = candidate.num_drafts;
  }
  if (shows_plain) tried = 0;
  if (tried < 0) return 0;
  pace_.begin();
  trial_of_ = &record, trial_drafts_ = tried, is_trial_ = true;
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
  for (size_t i = 0; i < wants_.size(); ++i) {
    int chosen = 0;
    for (; chosen < wants_[i].num; ++chosen) {
      const int level = options_.fixed ? last : wants_[i].levels[static_cast<size_t>(chosen)];
      if (level < last || (level == last && left == 0)) break;
      left -= level == last ? 1 : 0;
    }
    wants_[i].num = chosen;
  }
}

// Gives the likeliest drafts to their answers, and counts how many of them are expected to hold.
void SpeculationGate::share_out(int num_drafts, std::span<GateAsk> asks) {
  deal(num_drafts);
  expected_ = 0;
  for (size_t i = 0; i < wants_.size(); ++i) {
    asks_[i].most = wants_[i].num;
    for (int j = 0; j < wants_[i].num; ++j)
      expected_ += wants_[i].levels[static_cast<size_t>(j)] / (kLevels - 1.0);
  }
  if (!are_at_hand()) options_.drafter->draft(asks_);
  for (size_t i = 0; i < wants_.size(); ++i) {
    const auto num = std::min(static_cast<size_t>(wants_[i].num), asks_[i].drafts.size());
    asks[wants_[i].ask].drafts = asks_[i].drafts.first(num);
    kinds_[static_cast<size_t>(asks_[i].seat)] = asks_[i].kind;
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
  // Drafts may have been cut, for want of pages; a trial of none has none, nor is it followed.
  const bool is_plain = step.num_drafts == 0 && !step.follows;
  const bool is_trial = std::exchange(is_trial_, false) && step.is_pure &&
                        (trial_drafts_ > 0 ? step.num_drafts > 0 : is_plain);
  const bool is_cold = is_trial && pace_.is_cold();
  pace_.note(is_trial);
  totals_.num_trial_steps += is_trial ? 1 : 0;
  if (!step.is_pure || step.num_answers <= 0 || !(step.us > 0)) return;

  Record& record = record_for(step.num_answers, step.keys);
  ++record.num_steps;
  record.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  if (is_trial) ++record.num_trial_steps, --record.trials_left;
  if (record.num_steps % static_cast<uint64_t>(kGate.ageing) == 0) record.costs.age();
  const StepShape shape{.decode_rows = step.num_answers, .keys = step.keys};
  if (is_plain) {
    record.last_plain = record.num_steps;
    note_plain(record, shape, step.us);
  }
  const double reference_us = to_us(plain_times_.predict(shape));
  if (reference_us <= 0) return;
  if (!is_cold && (is_plain || step.num_drafts > 0))
    record.costs.note(step.num_drafts, step.us / reference_us);
  growth_ = record.costs.growth();
  record.plain_us = reference_us * record.costs.plain();
  credit_ = std::min(credit_ + kGate.credit_share, kGate.first_credit);
  if (!is_plain && record.plain_us > 0) note_gain(record, step, is_trial);
  rests_ = credit_ <= 0 || (rests_ && credit_ < kGate.credit_to_follow);
}

// Books the time that a step has gained or lost. Trials, and rows that were computed for later
// drafts, pay out of the credit. Drafts that were made ahead for the usual steps pay into it, so
// that those who gain may go on a while where they do not. Of them the credit counts those that
// were expected to hold, because a run of bad luck would end their making for long.
void SpeculationGate::note_gain(const Record& record, const Step& step, bool is_trial) {
  const double tokens = static_cast<double>(step.num_tokens) / step.num_answers;
  const double gained_us = record.plain_us * (step.num_drafts > 0 ? tokens : 1) - step.us;
  totals_.gained_us += gained_us;
  const bool is_usual = !is_trial && step.num_drafts > 0, is_ahead = options_.drafter->is_ahead();
  if (is_usual && !is_ahead) return;
  if (!is_usual) totals_.trial_us += gained_us;
  const double gain = is_ahead ? 1 + expected_ / step.num_answers - step.us / record.plain_us
                               : gained_us / record.plain_us;
  credit_ = std::clamp(credit_ + gain, kGate.least_credit, kGate.first_credit);
}

// The first steps of a size may be slow for reasons of their own, and the fit would take very long
// to forget them, so it begins behind them and no step counts as much slower than those before it.
void SpeculationGate::note_plain(Record& record, const StepShape& shape, double us) {
  record.plain_steps.add(static_cast<float>(us));
  if (record.plain_steps.count() < kGate.few) return;
  const double counted = std::min(us, kGate.most_off * record.plain_steps.median());
  plain_times_.note(shape, Duration(std::llround(counted * 1e3)));
}

GateState SpeculationGate::state() const {
  GateState out{.totals = totals_, .is_fixed = options_.fixed.has_value()};
  for (const Record& record : records_) {
    if (record.num_answers == 0 || record.num_steps == 0) continue;
    GateState::Size size{.num_answers = record.num_answers,
                         .keys = record.keys,
                         .num_steps = record.num_steps,
                         .num_draft_steps = record.num_draft_steps,
                         .num_trial_steps = record.num_trial_steps,
                         .usual = record.usual,
                         .best = record.best,
                         .plain_us = record.plain_us};
    size.text = text_of(size, out.is_fixed);
    out.sizes.push_back(std::move(size));
  }
  std::ranges::sort(out.sizes, {}, [](const GateState::Size& size) {
    return std::tuple(size.num_answers, size.keys);
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
