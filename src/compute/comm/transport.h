// Carries bytes from rank to rank: they are pushed, never requested. The receiver says beforehand
// where the next message of a channel lands, so a sender waits for no receiver.
//
//   receiver   expect(channel, slot) ....................... arrived(channel) -> bytes
//   sender               send(channel, parts) ... sent(channel)
//
// A channel is a peer, a lane and a kind; its messages arrive in order. A sender has at most one
// message under way on a channel, and at most one more may arrive before it is expected: that one
// is kept aside (all_to_all.h says why there are never more). Slots are always large enough. There
// are two implementations: ucx (hosts, and processes of one host) and loopback (ranks of one
// process, with a link model).
// Thread: one at a time, the one that computes. Nothing progresses while it computes, except what
// the kernel, the other side or a network card moves by itself (caps()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

inline constexpr int kMaxLanes = 16;  // two halves of eight messages each
inline constexpr int kMaxPieces = 8;  // pieces of one message

enum class MessageKind : uint8_t { dispatch, combine, agree };
inline constexpr int kNumMessageKinds = 3;

struct Channel {
  int peer = 0;  // the other rank
  int lane = 0;  // 0 .. kMaxLanes - 1
  MessageKind kind = MessageKind::dispatch;
};

struct TransportCaps {
  std::string name;              // for logs: "loopback", "ucx tcp", "ucx posix"
  bool moves_by_itself = false;  // bytes travel while the rank computes
  // Arrival times are those of the last byte; else when a rank noticed it.
  bool exact_arrival = false;
  bool one_clock = false;         // now() is the same on all ranks
  int64_t max_message_bytes = 0;  // larger messages would wait for the receiver
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  virtual TransportCaps caps() const = 0;

  // Sets where the next message of the channel lands. The slot belongs to the transport until that
  // message has arrived. Calling it while one is expected is a bug.
  virtual void expect(const Channel& from, std::span<std::byte> slot) = 0;
  // Returns the length of the expected message and the arrival of its last byte; nullopt while it
  // is not here.
  // Errors: lost_rank (the connection is gone, or the message is longer than the slot).
  struct Arrival {
    size_t num_bytes = 0;
    TimePoint when{};
  };
  virtual Result<std::optional<Arrival>> arrived(const Channel& from) = 0;

  // Begins to send up to kMaxPieces parts as one message. Their bytes must not change until sent();
  // the list of parts may go. Never waits. Calling it while an earlier message of the channel is
  // not sent is a bug. Errors: lost_rank.
  virtual Result<void> send(const Channel& to,
                            std::span<const std::span<const std::byte>> parts) = 0;
  // Returns true if the parts may be changed again. Errors: lost_rank.
  virtual Result<bool> sent(const Channel& to) = 0;
  // Returns all slots and parts to their owners: afterwards nothing is written or read there.
  // Messages that arrived without being expected are dropped; those under way are still sent if
  // possible.
  virtual void withdraw() = 0;

  // Drives transfers without waiting; returns true if anything moved since the last call. It is
  // cheap enough to be called between any two operations.
  virtual bool progress() = 0;
  // Returns as soon as progress() may move something, at the latest after `max_wait`. Call
  // progress() before each wait.
  virtual void wait(Duration max_wait) = 0;
  // Makes a wait() return at once: the one under way, else the next one.   Thread: any.
  virtual void wake() = 0;
  virtual TimePoint now() const = 0;
};

}  // namespace hocket
