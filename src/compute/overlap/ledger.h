// Where every microsecond of a rank's step went, booked once:
//
//   step = compute, by operation + beside (embedding, head, sampling, engine)
//        + exposed (waited for a transfer that was under way)
//        + waiting (waited for a rank that had not sent yet)
//        + idle (what nothing above accounts for; below 1 % or something is wrong)
//
// and on the wire beside it, transfer = hidden (this rank computed meanwhile) + exposed.
// The first five are whole to the nanosecond, for each moment is booked to what was going on then.
// Always on: one reading of the clock an operation, since each begins where the one before it
// ended; exchanges bring theirs. Thread: that of worker 0. Allocates at construction alone. Source:
// docs/contracts/overlap.md, "Ledger".
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "compute/comm/all_to_all.h"
#include "compute/overlap/medians.h"
#include "compute/overlap/step_report.h"

namespace hocket {

// One layer's part of an account.
struct LayerAccount {
  std::array<Duration, kNumOps> compute{};
  Duration exposed{}, waiting{}, hidden{};
};

struct StepAccount {
  bool has_pass = false;  // begin_pass() came
  uint64_t step = 0;
  Plan plan;
  Bucket bucket;  // of this rank
  bool is_shadow = false;
  TimePoint begin{};
  Duration took{};
  std::array<Duration, kNumOps> compute{};
  Duration beside{}, exposed{}, waiting{}, idle{};
  // On the wire. hidden: a message was under way, from when its last sender had pushed it until it
  // was here, and this rank neither waited for it nor for anything else. Several at once count
  // once. Where arrivals are noticed late, what was not waited for was here when those that were
  // waited for would have been.
  Duration hidden{};
  // How long the link carried the messages to here, by MessageKind (dispatch, combine): each from
  // when its last sender had pushed it, latency later, or the one before it was through.
  std::array<Duration, 2> busy{};
  std::array<int64_t, 2> bytes{};  // of the larger direction
  // What a message takes that is too short to matter: the least of the agreements lately; 0 while
  // there was none.
  Duration latency{};
  bool exact_arrival = false;    // else exposed is exact, hidden an estimate, busy an upper bound
  bool hidden_is_bound = false;  // an upper bound: no message of a kind was waited for so far
  std::array<int, 2> half_rows{};
  Duration half_compute[2]{};  // how even the halves were

  Duration computed() const;  // sum of compute
  Duration transferred() const { return hidden + exposed; }
  // Of transfer time, what was hidden (the coverage kappa); 0 without transfers.
  double hidden_share() const;
  // How much longer the slower half computed than the mean of both; 1 with one half.
  double half_imbalance() const;
  StepReport report() const;
};

// For a timeline, of the last step: an operation, a wait inside one, the messages of an exchange
// as they left (handed over, in an operation) and as they came (on the wire), or work beside.
struct LedgerSpan {
  enum class Kind : uint8_t { op, exposed, waiting, push, wire, beside };
  Kind kind = Kind::op;
  Op op = Op::attn_in;                          // of op
  MessageKind message = MessageKind::dispatch;  // of all but op, beside
  uint8_t half = 0, part = 0;
  int16_t layer = -1;  // -1: of none
  TimePoint begin{}, end{};
  int64_t bytes = 0;            // of push, wire
  const char* what = "beside";  // of beside
};

// May itself be the watch of an exchange.
class Ledger final : public ExchangeWatch {
 public:
  struct Limits {
    int num_layers = 0, num_ranks = 1;
    bool exact_arrival = false;  // TransportCaps
  };
  // The clock is that of the transport, or times do not fit each other; it outlives the ledger.
  Ledger(const Limits& limits, const Clock& clock);

  // A step begins, at the beginning of a turn of the engine. What waits before play() is for the
  // agreement: for slower ranks. One that was not ended is forgotten.
  void begin_step(TimePoint now);
  // Whose pass it is, once that was settled. half_rows: as far as they are known.
  void begin_pass(uint64_t step, const Plan& plan, const Bucket& bucket, bool is_shadow,
                  std::span<const int> half_rows = {});
  // How its rows were cut, once they are.
  void cut_into(std::span<const int> half_rows);
  // What lies between two operations is the second one's.
  void begin_op(int layer, Op op, int half);
  void end_op();
  // While it lives: work beside the layers (embedding, head, sampling, the engine's). May hold
  // operations and others of its kind; each moment is booked to the innermost.
  class Beside {
   public:
    // what: a word for timelines that outlives the ledger.
    explicit Beside(Ledger* ledger, const char* what = "beside");
    ~Beside();
    Beside(const Beside&) = delete;
    Beside& operator=(const Beside&) = delete;

   private:
    Ledger* ledger_;  // may be null
    const char* what_;
    TimePoint begin_{};
  };
  // After a wait for rows, or for an agreement.
  void heard(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times) override;
  // The account is whole until the next begin_step().
  const StepAccount& end_step(TimePoint now);

  const StepAccount& account() const { return account_; }
  std::span<const LayerAccount> layers() const { return layers_; }
  // Kept only while somebody wants them, from the next step on; at most so many a step as a pass
  // can have.
  void keep_spans(bool keep) { keeps_spans_ = keep; }
  std::span<const LedgerSpan> spans() const { return spans_; }
  // Of a pass of so many layers.
  static size_t most_spans(const Limits& limits);

 private:
  struct Message {
    TimePoint pushed{}, there{};
    int64_t bytes = 0;  // to here
    MessageKind kind = MessageKind::dispatch;
    int16_t layer = 0;
    bool is_bound = false;  // there: no later than that is all that is known
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

  // A step is open; what is going on in it, and since when it is not booked.
  bool is_open_ = false, in_op_ = false, after_op_ = false;
  int besides_ = 0;
  LedgerSpan op_;
  TimePoint begin_{}, since_{};
  Duration waited_{};  // since then
  // Of this step: by arrival, by time.
  std::vector<Message> messages_;
  std::vector<Wait> waits_;
  // The least latency of the last two windows of steps.
  static constexpr int kLatencySteps = 64;
  Duration least_[2] = {Duration::max(), Duration::max()};
  int latency_steps_ = 0;
  // By MessageKind, of those that were waited for: microseconds on the link by bytes, a step's
  // mean.
  std::array<RobustLine, 2> service_;
};

}  // namespace hocket
