// Accounts for every microsecond of a rank's step, each booked once:
//
//   step = compute, by operation + other (embedding, head, sampling, engine)
//        + exposed (waited for a transfer that was under way)
//        + waiting (waited for a rank that had not sent yet)
//        + idle (the rest; at 1 % or more something is not booked)
//
// On the wire, in parallel, transfer = hidden (this rank computed during it) + exposed. The first
// sum is exact to the nanosecond, because each moment is booked to what the thread did then. The
// ledger is always on. It reads the clock once per operation, since each begins where the one
// before it ended; exchanges have times of their own. Thread: that of worker 0. Allocates only at
// construction. Source: docs/contracts/overlap.md, "Ledger".
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "compute/comm/all_to_all.h"
#include "compute/overlap/robust_line.h"
#include "compute/overlap/step_report.h"

namespace hocket {

// The part of an account that belongs to one layer.
struct LayerAccount {
  std::array<Duration, kNumBooked> compute{};
  Duration exposed{}, waiting{}, hidden{};
};

struct StepAccount {
  bool has_pass = false;  // begin_pass() was called
  uint64_t step = 0;
  Plan plan;
  Bucket bucket;  // this rank's rows and keys
  bool is_trial = false;
  TimePoint begin{};
  Duration took{};
  std::array<Duration, kNumBooked> compute{};
  std::array<Duration, kNumStages> stages{};  // the same time by index_of(Stage), for the planner
  Duration other{}, exposed{}, waiting{}, idle{};
  // The time in which a message was under way, from the push of its last sender until its arrival,
  // while this rank waited neither for it nor for anything else. Several messages at once count
  // once. Where arrivals are noticed late, the arrival of a message that was not waited for is
  // estimated from those that were.
  Duration hidden{};
  // The time that the link carried messages to this rank, by MessageKind (dispatch, combine). A
  // message counts from the push of its last sender plus `latency`, or from when the link had
  // finished the message before, if that is later.
  std::array<Duration, 2> busy{};
  std::array<int64_t, 2> bytes{};  // sent or received, whichever is more in each exchange
  // The time that even a short message takes: the minimum over the agreements of the last 64 to 128
  // steps; 0 while there was none.
  Duration latency{};
  bool exact_arrival = false;  // False: exposed is exact, hidden an estimate, busy an upper bound
  // `hidden` is an upper bound: no message of one kind was waited for so far.
  bool hidden_is_bound = false;
  std::array<int, 2> half_rows{};
  Duration half_compute[2]{};  // shows how even the halves were

  Duration computed() const;  // the sum of `compute`
  Duration transferred() const { return hidden + exposed; }
  // Returns hidden / transferred (the coverage kappa); 0 without transfers.
  double hidden_share() const;
  // Returns the compute time of the slower half divided by the mean of both; 1 with one half.
  double half_imbalance() const;
  StepReport report() const;
};

// One bar of a timeline of the last step: an operation; a wait inside one; the messages of an
// exchange as they left (push: while they were passed to the transport, in an operation) or arrived
// (wire); or other work.
struct LedgerSpan {
  enum class Kind : uint8_t { op, exposed, waiting, push, wire, other };
  Kind kind = Kind::op;
  Op op = Op::attn_in;                          // only Kind::op
  MessageKind message = MessageKind::dispatch;  // all kinds except op and other
  uint8_t half = 0, part = 0;
  int16_t layer = -1;  // -1: it belongs to no layer
  TimePoint begin{}, end{};
  int64_t bytes = 0;           // only Kind::push and wire
  const char* what = "other";  // only Kind::other
};

// Books one step after the other. It can be the watch of an exchange.
class Ledger final : public ExchangeListener {
 public:
  struct Limits {
    int num_layers = 0, num_ranks = 1;
    bool exact_arrival = false;  // TransportCaps::exact_arrival
    LayerKinds kinds = {};
  };
  // `clock` must be the transport's clock, or times do not fit together; it outlives the ledger.
  Ledger(const Limits& limits, const Clock& clock);

  // Begins a step, at the beginning of a turn of the engine. A wait before play() is a wait for the
  // agreement, that is for slower ranks. A step that was begun and not ended is forgotten.
  void begin_step(TimePoint now);
  // Says which pass the step plays, once the ranks have agreed on it. half_rows: rows of each half,
  // if they are known already.
  void begin_pass(uint64_t step, const Plan& plan, const Bucket& bucket, bool is_trial,
                  std::span<const int> half_rows = {});
  // Says how the rows were cut into halves, as soon as that is known.
  void cut_into(std::span<const int> half_rows);
  // The time between two operations is booked to the second one.
  void begin_op(int layer, Op op, int half);
  void end_op();
  // While an object lives, time is booked as work outside the layers (embedding, head, sampling,
  // the engine's). Operations and more OtherWork may be nested in it; each moment is booked to the
  // innermost.
  class OtherWork {
   public:
    // `what` is a word for timelines; it outlives the ledger.
    explicit OtherWork(Ledger* ledger, const char* what = "other");
    ~OtherWork();
    OtherWork(const OtherWork&) = delete;
    OtherWork& operator=(const OtherWork&) = delete;

   private:
    Ledger* ledger_;  // may be null
    const char* what_;
    TimePoint begin_{};
  };
  // The exchange calls it after a wait for rows or for an agreement. Waits of layers beyond
  // limits.num_layers are not booked apart: they belong to the OtherWork around them.
  void finished(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times) override;
  // Ends the step. The returned account is valid until the next begin_step().
  const StepAccount& end_step(TimePoint now);

  const StepAccount& account() const { return account_; }
  std::span<const LayerAccount> layers() const { return layers_; }
  // Spans are recorded only while `keep` is set, from the next step on; spans beyond max_spans()
  // are dropped.
  void keep_spans(bool keep) { keeps_spans_ = keep; }
  std::span<const LedgerSpan> spans() const { return spans_; }
  // Returns the largest number of spans that a pass of limits.num_layers layers can have.
  static size_t max_spans(const Limits& limits);

 private:
  struct Message {
    TimePoint pushed{}, there{};
    int64_t bytes = 0;  // received by this rank
    MessageKind kind = MessageKind::dispatch;
    int16_t layer = 0;
    bool is_bound = false;  // `there` is only an upper bound
  };
  struct Wait {
    TimePoint begin{}, end{};
  };

  void book(TimePoint now);
  void book_wait(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times);
  void note_message(MessageKind kind, Stamp stamp, const ExchangeTimes& times);
  void note_latency(const ExchangeTimes& times);
  void settle_wire();
  void estimate_arrivals();
  Duration waited_in(TimePoint begin, TimePoint end) const;
  void keep(const LedgerSpan& span);
  LayerAccount* layer_account(int layer);

  const Clock& clock_;
  const Limits limits_;
  StepAccount account_;
  std::vector<LayerAccount> layers_;
  std::vector<LedgerSpan> spans_;
  bool keeps_spans_ = false;

  // The state of the open step: what the thread does, and since when (since_) it is not booked.
  bool is_open_ = false, in_op_ = false, after_op_ = false;
  int other_depth_ = 0;
  LedgerSpan op_;
  TimePoint begin_{}, since_{};
  Duration waited_{};  // waits after since_
  // The messages of this step, sorted by arrival, and its waits, sorted by time.
  std::vector<Message> messages_;
  std::vector<Wait> waits_;
  // The least latency in the current and in the last window of kLedgerTuning.latency_steps.
  Duration min_latencies_[2] = {Duration::max(), Duration::max()};
  int latency_steps_ = 0;
  // Microseconds on the link by bytes, for each MessageKind: each step adds its mean over the
  // messages that were waited for.
  std::array<RobustLine, 2> service_;
};

}  // namespace hocket
