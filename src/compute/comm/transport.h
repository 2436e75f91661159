// How bytes get from rank to rank: pushed, never asked for. The receiver says beforehand where the
// next message of a channel lands, so a sender waits for nobody.
//
//   receiver   expect(channel, slot) ....................... arrived(channel) -> bytes
//   sender               send(channel, parts) ... sent(channel)
//
// A channel is a peer, a lane and a kind; its messages arrive in order. A sender has at most one
// message under way on it, and at most one more may come before it is expected: that one is kept
// aside (all_to_all.h says why there are never more). Slots are large enough by construction.
// Two implementations: ucx (hosts, and processes of one host) and loopback (ranks of one process,
// with a link model).
// Thread: the rank's engine thread alone; nothing progresses while it computes, but for what the
// kernel, the other side or a network card moves by itself (caps()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

inline constexpr int kMaxLanes = 8;   // two halves of four parts
inline constexpr int kMaxPieces = 8;  // of one message

enum class MessageKind : uint8_t { dispatch, combine, agree };
inline constexpr int kNumMessageKinds = 3;

struct Channel {
  int peer = 0;  // the other rank
  int lane = 0;  // 0 .. kMaxLanes - 1
  MessageKind kind = MessageKind::dispatch;
};

struct TransportCaps {
  std::string name;               // for people: "loopback", "ucx tcp", "ucx posix"
  bool moves_by_itself = false;   // bytes travel while the rank computes
  bool exact_arrival = false;     // arrival times are those of the last byte, not of who noticed
  bool one_clock = false;         // now() is the same on all ranks
  int64_t max_message_bytes = 0;  // larger ones would wait for the receiver
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  virtual TransportCaps caps() const = 0;

  // Where the next message of the channel is to land. The slot stays the transport's until that
  // message has arrived. A bug while one is expected already.
  virtual void expect(const Channel& from, std::span<std::byte> slot) = 0;
  // Once the expected message is there: its length and when its last byte came; nullopt before.
  // Errors: lost_rank (the connection is gone, or the message is longer than the slot).
  struct Arrival {
    size_t num_bytes = 0;
    TimePoint when{};
  };
  virtual Result<std::optional<Arrival>> arrived(const Channel& from) = 0;

  // Begins to send up to kMaxPieces parts as one message. Their bytes must stay as they are until
  // sent(); the list itself may go. Never waits.
  // A bug while an earlier message of the channel is not sent. Errors: lost_rank.
  virtual Result<void> send(const Channel& to,
                            std::span<const std::span<const std::byte>> parts) = 0;
  // Whether the parts may be changed again. Errors: lost_rank.
  virtual Result<bool> sent(const Channel& to) = 0;
  // All slots and parts are their owners' again: nothing is written or read any more. Messages that
  // came and were not asked for are forgotten; those under way are still sent if they can be.
  virtual void withdraw() = 0;

  // Moves what can be moved without waiting; true if anything did since the last call. Cheap enough
  // for every border between operations.
  virtual bool progress() = 0;
  // Returns as soon as progress() may move something, at the latest after `most`. So call
  // progress() before each.
  virtual void wait(Duration most) = 0;
  // Makes a wait() return at once: the one under way, or else the next.   Thread: any.
  virtual void wake() = 0;
  virtual TimePoint now() const = 0;
};

}  // namespace hocket
