// How a rank reaches the others, and finds them again when one was lost.
//
//   join() -> Link .. steps of epoch 1 .. somebody is lost: abort() is non-zero, lost() says why
//   part() -> join() -> Link .. steps of epoch 2 ..
//
// Two implementations: ranks of one process over the loopback, where whoever is lost stays lost,
// and ranks in processes, found by the control plane and reached over UCX.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/pulse.h"
#include "compute/comm/all_to_all.h"
#include "compute/overlap/ledger.h"

namespace hocket {

class RankNetwork {
 public:
  virtual ~RankNetwork() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // For people: "loopback, 1 Gbit/s", "ucx 1.13.1 | tcp on eth0 | eager".   Thread: any.
  virtual std::string describe() const = 0;

  // What the messages of an epoch travel over; until part().
  struct Link {
    Transport* transport = nullptr;
    uint32_t epoch = 0;
  };
  // Waits for the others, at most `most`; nothing while not all are there: ask again.
  // Errors: lost_rank, and it is for good.   Thread: engine.
  virtual Result<std::optional<Link>> join(Duration most) = 0;
  // The link is no more, nor is its transport. Without one, nothing.   Thread: engine.
  virtual void part() = 0;

  // A step of this rank failed, because of `peer`; -1: nobody in particular. All ranks leave the
  // epoch.   Thread: engine.
  virtual void lose(int peer, const Error& why) = 0;
  // Why no step can be made now: who is not there. Nothing while linked.   Thread: any.
  virtual std::optional<Error> lost() const = 0;
  // Why no step can ever be made again; the process should end.   Thread: any.
  virtual std::optional<Error> failure() const { return std::nullopt; }
  // Non-zero as soon as the epoch is over: whoever waits gives up.   Thread: any.
  virtual const std::atomic<uint32_t>& abort() const = 0;
  // Where this rank is, for those who watch it.
  virtual Pulse& pulse() = 0;
  // Ends a join() that waits, and the transport's wait().   Thread: any.
  virtual void wake() = 0;

  // Whether a rank may stop while the others go on: they must learn from the network that it has
  // left, or they would wait for its next message until the stall timeout.
  virtual bool may_leave_others() const = 0;
};

// Passes on to a pulse and to a ledger what the exchange tells, and adds up how long others were
// waited for.
class PulseWatch final : public ExchangeWatch {
 public:
  explicit PulseWatch(Pulse* pulse) : pulse_(pulse) {}
  // Null: nobody. Outlives this, or until another is given.
  void book_in(Ledger* ledger) { ledger_ = ledger; }
  void started(int /*lane*/, MessageKind kind, Stamp stamp) override {
    if (pulse_ != nullptr)
      pulse_->reached(uint32_t{stamp.layer} * kNumMessageKinds + static_cast<uint32_t>(kind));
  }
  void waits() override {
    if (pulse_ != nullptr) pulse_->waiting();
    since_ = RealClock().now();
  }
  void goes_on() override {
    if (pulse_ != nullptr) pulse_->computing();
    waited_ += RealClock().now() - since_;
  }
  void heard(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times) override {
    if (ledger_ != nullptr) ledger_->heard(lane, kind, stamp, times);
  }
  // How long it stood still since this was asked last.
  Duration take_waited() { return std::exchange(waited_, {}); }

 private:
  Pulse* const pulse_;
  Ledger* ledger_ = nullptr;
  TimePoint since_{};
  Duration waited_{};
};

}  // namespace hocket
