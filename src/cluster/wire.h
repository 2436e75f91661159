// The messages between rank 0 and the others, as bytes. A frame is
//
//   u32 length of what follows | u8 version of the protocol | u8 type | fields
//
// in little-endian order; a text is its length as u16 (names) or u32 (values of the store), then
// its bytes. Frames are at most 1 MiB, and 1 KiB before the handshake. Reading is strict: a frame
// that differs from what this code would have written is an error and ends the connection.
// The receiver prints texts for people, so control characters in them are sent as spaces. Thread:
// any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "cluster/member.h"

namespace hocket {

inline constexpr uint8_t kClusterProtocol = 12;
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;
inline constexpr size_t kMaxStrangerFrameBytes = 1024;
inline constexpr size_t kMaxStoreKeyBytes = 256;
inline constexpr size_t kMaxStoreValueBytes = size_t{1} << 19;

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

// The messages of the handshake, in this order; token_proof.h says what it proves.
struct HelloMessage {  // sent first, by rank 0
  bool needs_token = false;
  bool tls = false;  // all that follows is inside TLS
  Nonce nonce{};
  bool operator==(const HelloMessage&) const = default;
};
struct ProofMessage {  // answer of the other rank
  Nonce nonce{};
  Proof proof{};
  bool operator==(const ProofMessage&) const = default;
};
struct WelcomeMessage {
  Proof proof{};
  bool operator==(const WelcomeMessage&) const = default;
};

// last_epoch is the last one that the rank knows, so that a restarted rank 0 counts on from there.
// resumes: the rank still works in that epoch, and only its connection is new. began, replicas: as
// in that view.
struct JoinMessage {
  Identity identity;
  uint32_t last_epoch = 0;
  bool resumes = false;
  bool began = false;
  Heartbeat heartbeat;
  int replicas = -1;
  bool operator==(const JoinMessage&) const = default;
};
// may_retry: the reason may go away by itself.
struct RefusedMessage {
  bool may_retry = false;
  uint16_t code = 0;  // an ErrorCode
  std::string text, fix;
  bool operator==(const RefusedMessage&) const = default;
};
struct ViewMessage {
  ClusterView view;
  bool operator==(const ViewMessage&) const = default;
};
struct HeartbeatMessage {
  Heartbeat heartbeat;
  bool operator==(const HeartbeatMessage&) const = default;
};
struct LeaveMessage {
  std::string why;
  bool operator==(const LeaveMessage&) const = default;
};
// The sender's data plane waited for `rank` and got no message in this epoch; rank -1 means that
// the sender gives up the step and no rank is missing.
struct ReportMessage {
  uint32_t epoch = 0;
  int rank = -1;
  std::string why;
  bool operator==(const ReportMessage&) const = default;
};

enum class StoreOp : uint8_t { set, get, wait, add, erase };
// number: for set, the entry's lifetime in ms (0 for good); for wait, the limit in ms; for add, the
// summand.
struct StoreRequest {
  uint64_t id = 0;
  StoreOp op = StoreOp::get;
  std::string key, value;
  int64_t number = 0;
  bool operator==(const StoreRequest&) const = default;
};
// code 0: done. number: the sum, for add.
struct StoreReply {
  uint64_t id = 0;
  uint16_t code = 0;  // 0, or an ErrorCode with its sentence in `value`
  std::string value;
  int64_t number = 0;
  bool operator==(const StoreReply&) const = default;
};

// The type on the wire is the index in this list, from 1.
using Message = std::variant<HelloMessage, ProofMessage, WelcomeMessage, JoinMessage,
                             RefusedMessage, ViewMessage, HeartbeatMessage, LeaveMessage,
                             ReportMessage, StoreRequest, StoreReply>;

// Appends the frame of `message`. A text longer than its limit is a bug.
void append_frame(std::string& out, const Message& message);
// Parses a frame without its length: version, type and fields. Errors: bad_value; lost_rank for
// another version of the protocol, naming both.
Result<Message> parse_frame(std::string_view frame);
// Returns the length of the frame at the front, without its first four bytes; nullopt if those are
// not there yet. Errors: bad_value if it is below 2 or above `max_bytes`.
Result<std::optional<size_t>> frame_length(std::string_view bytes, size_t max_bytes);

}  // namespace hocket
