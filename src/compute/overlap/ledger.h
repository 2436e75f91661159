// Where every microsecond of a rank's step went, booked once:
//
//   step = compute, by operation + beside (embedding, head, sampling, engine)
//        + exposed (waited for a transfer that was under way)
//        + waiting (waited for a rank that had not sent yet)
//        + idle (what nothing above accounts for; below 1 % or something is wrong)
//
// and on the wire beside it, transfer = hidden (this rank computed meanwhile) + exposed.
// Always on: two readings of the clock an operation, four an exchange. Thread: engine. Allocates at
// construction alone.   Source: docs/contracts/overlap.md, "ledger".
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "compute/comm/all_to_all.h"
#include "compute/overlap/step_report.h"

namespace hocket {

// One layer's part of an account.
struct LayerAccount {
  std::array<Duration, kNumOps> compute{};
  Duration exposed{}, waiting{}, hidden{};
};

struct StepAccount {
  uint64_t step = 0;
  Plan plan;
  Bucket bucket;  // of this rank
  bool is_shadow = false;
  Duration took{};
  std::array<Duration, kNumOps> compute{};
  Duration beside{}, exposed{}, waiting{}, idle{};
  // On the wire. busy: how long the link carried the messages to here, by MessageKind (dispatch,
  // combine): each counts from when its last sender had pushed it and the one before was through.
  Duration hidden{};
  std::array<Duration, 2> busy{};
  std::array<int64_t, 2> bytes{};  // of the larger direction
  Duration latency{};              // the least of an exchange
  bool exact_arrival = false;      // else exposed is exact, hidden an upper bound
  std::array<int, 2> half_rows{};
  Duration half_compute[2]{};  // how even the halves were

  Duration computed() const;  // sum of compute
  Duration transferred() const { return hidden + exposed; }
  // Of transfer time, what was hidden; 0 without transfers.
  double hidden_share() const;
  StepReport report() const;
};

// For a timeline: an operation, a wait inside one, or a message on the wire, of the last step.
struct LedgerSpan {
  enum class Kind : uint8_t { op, exposed, waiting, wire, beside };
  Kind kind = Kind::op;
  Op op = Op::attn_in;                          // of op
  MessageKind message = MessageKind::dispatch;  // of exposed, waiting, wire
  uint8_t half = 0, part = 0;
  int16_t layer = 0, peer = -1;  // peer: of wire
  TimePoint begin{}, end{};
  int64_t bytes = 0;
};

class Ledger {
 public:
  struct Limits {
    int num_layers = 0, num_ranks = 1;
  };
  // The clock is that of the transport, or times do not fit each other; it outlives the ledger.
  Ledger(const Limits& limits, const Clock& clock);

  // A step begins, at the beginning of a turn of the engine. What waits before play() is for the
  // agreement: for slower ranks.
  void begin_step(TimePoint now);
  // Whose pass it is, once that was settled.
  void begin_pass(uint64_t step, const Plan& plan, const Bucket& bucket, bool is_shadow,
                  std::span<const int> half_rows);
  void begin_op(int layer, Op op, int half);
  void end_op();
  // While it lives: work beside the layers (embedding, head, sampling, the engine's).
  class Beside {
   public:
    explicit Beside(Ledger* ledger);
    ~Beside();

   private:
    Ledger* ledger_;
  };
  // After a wait for rows, or for an agreement.
  void waited(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times);
  // The account is whole until the next begin_step().
  const StepAccount& end_step(TimePoint now);

  const StepAccount& account() const { return account_; }
  std::span<const LayerAccount> layers() const { return layers_; }
  // Kept only while somebody wants them; at most so many a step as a pass can have.
  void keep_spans(bool keep) { keeps_spans_ = keep; }
  std::span<const LedgerSpan> spans() const { return spans_; }

 private:
  const Clock& clock_;
  Limits limits_;
  StepAccount account_;
  std::vector<LayerAccount> layers_;
  std::vector<LedgerSpan> spans_;
  bool keeps_spans_ = false;
};

}  // namespace hocket
