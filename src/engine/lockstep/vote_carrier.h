// Exchanges the votes of an agreement on the thread that has the exchange just then.
//
//   engine    lend() launch | commit  post() ............... collect() -> from()
//   forward        '-> pass: dispatch move() combine move() .. give_back() | sample
//                                      '-> sends   '-> receives
//
// The exchange, and the transport below it, belong to the engine's thread. Where steps overlap it
// lends them to the forward thread for each pass. Votes that are posted meanwhile are carried by
// the pass, between its operations, and never wait there: a vote leaves once the one before is
// sent, and those of the others are taken once they are all here. If the pass is over before they
// are here, collect() takes the exchange back and waits itself. So no two threads use the exchange
// at the same time, and an agreement that began is always finished, whether or not the pass
// succeeds.
// Thread: engine, except where marked "forward". Allocates only in construction.
// Source: docs/decisions/0021-the-pass-carries-the-votes.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/comm/all_to_all.h"

namespace hocket {

class VoteCarrier {
 public:
  VoteCarrier(int num_ranks, size_t vote_bytes);
  // Starts a new epoch. The exchange outlives all calls until the next rebind().
  void rebind(AllToAll& exchange);

  // Sends this rank's vote, which is copied, or has the pass or collect() send it, without waiting.
  // Errors are kept: collect() returns them. Precondition: the agreement before is collected.
  void post(Stamp stamp, std::span<const std::byte> vote);
  // Waits until the votes of all ranks are here. Errors: lost_rank.
  Result<void> collect();
  // Returns the vote of another rank after collect(), until the next post(). It may have another
  // length than votes have; of one that is too long, one byte too many is returned.
  std::span<const std::byte> from(int rank) const;

  // Lends the exchange to a pass that is about to be launched. Several may be under way; the
  // exchange is returned by the last of them.
  void lend() { ++num_lent_; }
  // True if the exchange belongs to the engine's thread.
  bool is_here() const { return num_returned_.load(std::memory_order_acquire) == num_lent_; }
  // Carries what was posted, without waiting. Thread: forward, during a pass.
  void move();
  // Ends a pass. Thread: forward.
  void give_back();

 private:
  enum class State : uint8_t { none, posted, started, here, failed };
  void start();
  void take();
  void enter(State next);
  void signal();

  AllToAll* exchange_ = nullptr;
  uint32_t num_lent_ = 0;
  std::atomic<uint32_t> num_returned_{0};
  // The thread that has the exchange changes it; only the engine's leaves none, here and failed.
  std::atomic<State> state_{State::none};
  std::atomic<uint32_t> num_events_{0};  // the forward thread makes collect() check again
  Stamp stamp_;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> votes_;  // [ranks]
  std::vector<size_t> sizes_;                  // [ranks] bytes that were received
  std::vector<AllToAll::Parts> parts_;         // [ranks]
  std::optional<Error> error_;                 // set before State::failed
};

}  // namespace hocket
