// Connects a rank with the others, and again after one was lost.
//
//   members() -> join() -> Link .. steps of epoch 1 .. a rank is lost: abort() is non-zero
//   leave() -> members() -> join() -> Link .. steps of epoch 2 ..         lost() says why
//
// The next epoch has all ranks, or with --tolerate-ranks those that are there.
//
// There are two implementations: ranks of one process over the loopback, where a lost rank stays
// lost, and ranks in processes, found by the control plane and reached over UCX.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/own_heartbeat.h"
#include "compute/comm/all_to_all.h"
#include "compute/overlap/ledger.h"
#include "engine/lockstep/vote_carrier.h"

namespace hocket {

class RankNetwork {
 public:
  virtual ~RankNetwork() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Describes itself for people: "loopback, 1 Gbit/s", "ucx 1.13.1 | tcp on eth0 | eager". Thread:
  // any.
  virtual std::string describe() const = 0;

  // The transport of an epoch; valid until leave().
  struct Link {
    Transport* transport = nullptr;
    uint32_t epoch = 0;
    RankSet ranks;  // those of the epoch
  };
  // Waits for the next epoch, at most `max_wait`, and returns its ranks, this one among them;
  // nullopt if there is none yet, then call again. Errors: lost_rank, which is final. Thread:
  // engine.
  virtual Result<std::optional<RankSet>> members(Duration max_wait) = 0;
  // Connects to the other ranks of this epoch, which takes at most `max_wait`; nullopt if not all
  // are connected, then call members() again. Errors: lost_rank, which is final. Thread: engine.
  virtual Result<std::optional<Link>> join(const RankSet& ranks, Duration max_wait) = 0;
  // Ends the link and its transport, if there is one. Thread: engine.
  virtual void leave() = 0;

  // Informs the others that this rank leaves for good, so that none waits for its next message. No
  // epoch follows. Thread: engine.
  virtual void announce_end() {}

  // Reports that a step of this rank failed because of `peer` (-1: no single rank). All ranks leave
  // the epoch. Thread: engine.
  virtual void report_lost(int peer, const Error& why) = 0;
  // Returns why no step can run, naming the missing rank; nullopt while linked. Thread: any.
  virtual std::optional<Error> lost() const = 0;
  // True if this rank has been one of those that serve: if it is not linked, it is connecting to
  // the others, and a request may wait for that. Thread: any.
  virtual bool serves_soon() const { return false; }
  // Returns why no step can ever run again; the process should end. Thread: any.
  virtual std::optional<Error> failure() const { return std::nullopt; }
  // Becomes non-zero as soon as the epoch is over; waits then give up. Thread: any.
  virtual const std::atomic<uint32_t>& abort() const = 0;
  // Returns this rank's progress, which the heartbeat sends.
  virtual OwnHeartbeat& own_heartbeat() = 0;
  // Ends a join() that waits, and the transport's wait(). Thread: any.
  virtual void wake() = 0;

  // True if ranks that lost each other may join again, so that requests can wait for that.
  virtual bool can_rejoin() const = 0;
  // True if the others pause while this rank is away, however many may be missing.
  virtual bool pauses_others() const { return false; }
  // True if a rank may stop while the others continue. For that the network must inform them that
  // it has left, or they would wait for its next message until the stall timeout.
  virtual bool others_can_serve() const = 0;
};

// Passes events of the exchange on to the heartbeat and a ledger, lets passes carry votes, and adds
// up the time of waits for other ranks. Thread: that of the exchange.
class ExchangeObserver final : public ExchangeListener {
 public:
  explicit ExchangeObserver(OwnHeartbeat* own_heartbeat) : own_heartbeat_(own_heartbeat) {}
  // Sets the ledger, which must outlive this or the next book_in(); null: none.
  void book_in(Ledger* ledger) { ledger_ = ledger; }
  // Sets whose votes are carried by passes, which must outlive this.
  void carry(VoteCarrier& votes) { votes_ = &votes; }
  void started(int /*lane*/, MessageKind kind, Stamp stamp) override {
    if (own_heartbeat_ != nullptr)
      own_heartbeat_->reached(uint32_t{stamp.layer} * kNumMessageKinds +
                              static_cast<uint32_t>(kind));
  }
  void waits() override {
    if (own_heartbeat_ != nullptr) own_heartbeat_->waiting();
    since_ = RealClock().now();
  }
  void goes_on() override {
    if (own_heartbeat_ != nullptr) own_heartbeat_->computing();
    waited_ += RealClock().now() - since_;
  }
  void progressed() override {
    if (votes_ != nullptr) votes_->move();
  }
  void finished(int lane, MessageKind kind, Stamp stamp, const ExchangeTimes& times) override {
    if (ledger_ != nullptr) ledger_->finished(lane, kind, stamp, times);
  }
  // Returns the time of waits since the last call.
  Duration take_waited() { return std::exchange(waited_, {}); }

 private:
  OwnHeartbeat* const own_heartbeat_;
  Ledger* ledger_ = nullptr;
  VoteCarrier* votes_ = nullptr;
  TimePoint since_{};
  Duration waited_{};
};

}  // namespace hocket
