#include "compute/overlap/ledger.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compute/forward/half.h"

namespace hocket {
namespace {

constexpr int kMaxOtherWork = 64;  // spans of OtherWork in one step
constexpr int kMaxAgreements = 8;  // agreements in one step

size_t index_of(Op op) {
  return static_cast<size_t>(op);
}

size_t max_exchanges(const Ledger::Limits& limits) {
  if (limits.num_ranks == 1) return 0;
  return static_cast<size_t>(limits.num_layers) * kMaxLanes * 2 + kMaxAgreements;
}

}  // namespace

size_t Ledger::max_spans(const Limits& limits) {
  const size_t ops = static_cast<size_t>(limits.num_layers) * kMaxHalves * kNumOps;
  // Each exchange: exposed, waiting, push, wire.
  return ops + 4 * max_exchanges(limits) + kMaxOtherWork;
}

Ledger::Ledger(const Limits& limits, const Clock& clock) : clock_(clock), limits_(limits) {
  layers_.resize(static_cast<size_t>(limits.num_layers));
  messages_.reserve(max_exchanges(limits));
  waits_.reserve(max_exchanges(limits));
  spans_.reserve(max_spans(limits));
}

void Ledger::begin_step(TimePoint now) {
  const Duration latency = account_.latency;
  account_ = {.begin = now, .latency = latency, .exact_arrival = limits_.exact_arrival};
  std::ranges::fill(layers_, LayerAccount());
  spans_.clear();
  messages_.clear();
  waits_.clear();
  is_open_ = true;
  in_op_ = after_op_ = false;
  begin_ = since_ = now;
  waited_ = {};
}

void Ledger::begin_pass(uint64_t step, const Plan& plan, const Bucket& bucket, bool is_trial,
                        std::span<const int> half_rows) {
  account_.has_pass = is_open_;
  account_.step = step;
  account_.plan = plan;
  account_.bucket = bucket;
  account_.is_trial = is_trial;
  cut_into(half_rows);
}

void Ledger::cut_into(std::span<const int> half_rows) {
  HOCKET_CHECK(half_rows.size() <= account_.half_rows.size());
  std::ranges::copy(half_rows, account_.half_rows.begin());
}

// Books the time since the last booking, less the waits in it, to the innermost activity under way.
void Ledger::book(TimePoint now) {
  const Duration spent = now - since_ - waited_;
  since_ = now;
  waited_ = {};
  after_op_ = false;
  if (in_op_) {
    account_.compute[index_of(op_.op)] += spent;
    const Op op = op_.op == Op::delta_core ? Op::attn_core : op_.op;
    account_.stages[index_of({op, limits_.kinds.of(op_.layer)})] += spent;
    account_.half_compute[op_.half] += spent;
    if (LayerAccount* layer = layer_account(op_.layer)) layer->compute[index_of(op_.op)] += spent;
  } else if (other_depth_ > 0) {
    account_.other += spent;
  } else {
    account_.idle += spent;
  }
}

void Ledger::begin_op(int layer, Op op, int half) {
  if (!is_open_) return;
  HOCKET_CHECK(!in_op_);
  if (!after_op_) book(clock_.now());
  in_op_ = true;
  op_.op = op;
  op_.half = static_cast<uint8_t>(half);
  op_.layer = static_cast<int16_t>(layer);
  op_.begin = since_;
}

void Ledger::end_op() {
  if (!is_open_) return;
  HOCKET_CHECK(in_op_);
  book(clock_.now());
  in_op_ = false;
  after_op_ = true;
  if (!keeps_spans_) return;
  op_.end = since_;
  keep(op_);
}

Ledger::OtherWork::OtherWork(Ledger* ledger, const char* what) : ledger_(ledger), what_(what) {
  if (ledger_ == nullptr) return;
  if (ledger_->is_open_) ledger_->book(ledger_->clock_.now());
  begin_ = ledger_->since_;
  ++ledger_->other_depth_;
}

Ledger::OtherWork::~OtherWork() {
  if (ledger_ == nullptr) return;
  Ledger& l = *ledger_;
  if (l.is_open_) l.book(l.clock_.now());
  --l.other_depth_;
  if (l.is_open_ && l.keeps_spans_)
    l.keep({.kind = LedgerSpan::Kind::other,
            .begin = std::max(begin_, l.begin_),
            .end = l.since_,
            .what = what_});
}

void Ledger::finished(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times) {
  if (!is_open_) return;
  if (kind == MessageKind::agree) note_latency(times);
  // Waits of a module for multi-token prediction stay with the other work that it is.
  if (kind != MessageKind::agree && stamp.layer >= limits_.num_layers) return;
  book_wait(lane, kind, stamp, times);
  if (kind != MessageKind::agree) note_message(kind, stamp, times);
  if (!keeps_spans_ || kind == MessageKind::agree) return;
  LedgerSpan span{.message = kind,
                  .half = static_cast<uint8_t>(lane / kMaxParts),
                  .part = static_cast<uint8_t>(lane % kMaxParts),
                  .layer = static_cast<int16_t>(stamp.layer)};
  span.kind = LedgerSpan::Kind::push;
  span.begin = times.start, span.end = times.posted;
  span.bytes = static_cast<int64_t>(times.out_bytes);
  keep(span);
  span.kind = LedgerSpan::Kind::wire;
  span.begin = std::min(times.peers_posted, times.last_byte), span.end = times.last_byte;
  span.bytes = static_cast<int64_t>(times.in_bytes);
  keep(span);
}

// Splits a wait into waiting and exposed:
//
//   wait_in              peers_posted             wait_out
//   |---- waiting -------|------- exposed --------|        agreement: all of it is waiting
//   a peer has not sent   the rows travel
void Ledger::book_wait(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times) {
  const TimePoint begin =
      std::max({times.wait_in, since_, waits_.empty() ? begin_ : waits_.back().end});
  if (times.wait_out <= begin) return;
  const TimePoint turn = kind == MessageKind::agree
                             ? times.wait_out
                             : std::clamp(times.peers_posted, begin, times.wait_out);
  const Duration waiting = turn - begin, exposed = times.wait_out - turn;
  waited_ += waiting + exposed;
  account_.waiting += waiting;
  account_.exposed += exposed;
  if (LayerAccount* layer = in_op_ ? layer_account(op_.layer) : nullptr) {
    layer->waiting += waiting;
    layer->exposed += exposed;
  }
  if (waits_.size() < waits_.capacity()) waits_.push_back({begin, times.wait_out});
  if (!keeps_spans_) return;
  LedgerSpan span{
      .message = kind,
      .half = static_cast<uint8_t>(lane / kMaxParts),
      .part = static_cast<uint8_t>(lane % kMaxParts),
      .layer = kind == MessageKind::agree ? int16_t{-1} : static_cast<int16_t>(stamp.layer)};
  const auto keep_wait = [&](LedgerSpan::Kind what, TimePoint from, TimePoint to) {
    if (from >= to) return;
    span.kind = what, span.begin = from, span.end = to;
    keep(span);
  };
  keep_wait(LedgerSpan::Kind::waiting, begin, turn);
  keep_wait(LedgerSpan::Kind::exposed, turn, times.wait_out);
}

// Keeps messages_ sorted by arrival. Messages are reported nearly in that sequence, so an insertion
// moves them by one or two places.
void Ledger::note_message(MessageKind kind, Stamp stamp, const ExchangeTimes& times) {
  account_.bytes[static_cast<size_t>(kind)] +=
      static_cast<int64_t>(std::max(times.in_bytes, times.out_bytes));
  if (messages_.size() == messages_.capacity()) return;
  const Message message{.pushed = std::min(times.peers_posted, times.last_byte),
                        .there = times.last_byte,
                        .bytes = static_cast<int64_t>(times.in_bytes),
                        .kind = kind,
                        .layer = static_cast<int16_t>(stamp.layer)};
  messages_.push_back(message);
  for (size_t i = messages_.size() - 1; i > 0 && messages_[i].there < messages_[i - 1].there; --i)
    std::swap(messages_[i], messages_[i - 1]);
}

void Ledger::note_latency(const ExchangeTimes& times) {
  if (times.last_byte <= times.peers_posted) return;
  min_latencies_[0] = std::min(min_latencies_[0], times.last_byte - times.peers_posted);
  account_.latency = std::min(min_latencies_[0], min_latencies_[1]);
}

Duration Ledger::waited_in(TimePoint begin, TimePoint end) const {
  Duration sum{};
  auto wait = std::ranges::lower_bound(waits_, end, {}, &Wait::begin);
  while (wait != waits_.begin() && (--wait)->end > begin)
    sum += std::min(end, wait->end) - std::max(begin, wait->begin);
  return sum;
}

// Moves the arrival of messages that were noticed late to an earlier, estimated time:
//
//   from = max(pushed + latency, arrival of the message before)   there = when it was noticed
//   waited for half of [from, there] or more: the arrival was seen, and teaches service_
//   else: arrival = min(there, from + service_(bytes)), or unknown (is_bound)
void Ledger::estimate_arrivals() {
  struct MeanDelay {
    double us = 0, bytes = 0;
    int count = 0;
  };
  std::array<MeanDelay, 2> seen;
  TimePoint through{};
  bool is_through_known = true;
  for (Message& m : messages_) {
    const auto kind = static_cast<size_t>(m.kind);
    const TimePoint pushed = m.pushed + account_.latency, from = std::max(pushed, through);
    is_through_known = is_through_known || pushed >= through;
    if (from < m.there && waited_in(from, m.there) >= kTuning.seen_share * (m.there - from)) {
      if (is_through_known && m.bytes > 0) {
        seen[kind].us += to_us(m.there - from);
        seen[kind].bytes += static_cast<double>(m.bytes);
        ++seen[kind].count;
      }
      is_through_known = true;
    } else if (service_[kind].count() > 0) {
      const double us = service_[kind].at(static_cast<double>(m.bytes));
      m.there = std::min(m.there, from + Duration(std::llround(us * 1e3)));
    } else {
      m.is_bound = true;
      is_through_known = false;
    }
    through = m.there;
  }
  for (size_t kind = 0; kind < seen.size(); ++kind)
    if (const MeanDelay& s = seen[kind]; s.count > 0)
      service_[kind].add(s.bytes / s.count, s.us / s.count);
}

void Ledger::settle_wire() {
  TimePoint through{};
  for (const Message& m : messages_) {  // the link carries them one after the other
    const TimePoint from = std::max(m.pushed + account_.latency, through);
    if (m.there > from) account_.busy[static_cast<size_t>(m.kind)] += m.there - from;
    through = m.there;
  }
  if (!account_.exact_arrival) estimate_arrivals();
  // hidden = length of the union of all [pushed, there], less the waits in it. From the last
  // message to the first, `counted` is the begin of what was counted already.
  TimePoint counted = TimePoint::max();
  for (size_t i = messages_.size(); i-- > 0;) {
    const Message& m = messages_[i];
    const TimePoint begin = std::max(m.pushed, begin_), end = std::min(m.there, counted);
    if (begin >= end) continue;
    counted = begin;
    const Duration hidden = end - begin - waited_in(begin, end);
    account_.hidden += hidden;
    account_.hidden_is_bound |= m.is_bound && hidden > Duration{};
    if (LayerAccount* layer = layer_account(m.layer)) layer->hidden += hidden;
  }
}

const StepAccount& Ledger::end_step(TimePoint now) {
  HOCKET_CHECK(!in_op_);
  if (!is_open_) return account_;
  book(now);
  is_open_ = false;
  account_.took = now - begin_;
  settle_wire();
  if (++latency_steps_ == kLedgerTuning.latency_steps) {
    latency_steps_ = 0;
    min_latencies_[1] = min_latencies_[0];
    min_latencies_[0] = Duration::max();
  }
  return account_;
}

void Ledger::keep(const LedgerSpan& span) {
  if (spans_.size() < spans_.capacity()) spans_.push_back(span);
}

LayerAccount* Ledger::layer_account(int layer) {
  return layer >= 0 && layer < limits_.num_layers ? &layers_[static_cast<size_t>(layer)] : nullptr;
}

}  // namespace hocket
