// What ranks say to rank 0 and back, as bytes. A frame is
//
//   u32 length of what follows | u8 version of the protocol | u8 type | fields
//
// little-endian; a text is u16 (names), or u32 (values of the store), and its bytes. Frames are at
// most 1 MiB, and 1 KiB before a stranger has proven itself. Reading is strict: a frame that is not
// exactly what this code would have written is an error, and ends the connection.
// Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "cluster/member.h"

namespace hocket {

inline constexpr uint8_t kClusterProtocol = 1;
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;
inline constexpr size_t kMaxStrangerFrameBytes = 1024;
inline constexpr size_t kMaxStoreKeyBytes = 256;
inline constexpr size_t kMaxStoreValueBytes = size_t{1} << 19;

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

// The handshake, in this order; auth.h says what it proves.
struct HelloMessage {  // rank 0 speaks first
  bool needs_token = false;
  Nonce nonce{};
  bool operator==(const HelloMessage&) const = default;
};
struct ProofMessage {  // the other answers
  Nonce nonce{};
  Proof proof{};
  bool operator==(const ProofMessage&) const = default;
};
struct WelcomeMessage {
  Proof proof{};
  bool operator==(const WelcomeMessage&) const = default;
};

// last_epoch: of the last view the rank had, so that a restarted rank 0 goes on counting from
// there.
// resumes: it still works in that epoch, only its connection is new.
struct JoinMessage {
  Identity identity;
  uint32_t last_epoch = 0;
  bool resumes = false;
  Beat beat;
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
struct BeatMessage {
  Beat beat;
  bool operator==(const BeatMessage&) const = default;
};
struct LeaveMessage {
  std::string why;
  bool operator==(const LeaveMessage&) const = default;
};
// The data plane of the sender missed `rank` in this epoch; rank -1: the step is to be given up,
// nobody is missing.
struct ReportMessage {
  uint32_t epoch = 0;
  int rank = -1;
  std::string why;
  bool operator==(const ReportMessage&) const = default;
};

enum class StoreOp : uint8_t { set, get, wait, add, erase };
// number: of set, how long the entry lives in ms (0: for good); of wait, how long in ms; of add,
// what to add.
struct StoreRequest {
  uint64_t id = 0;
  StoreOp op = StoreOp::get;
  std::string key, value;
  int64_t number = 0;
  bool operator==(const StoreRequest&) const = default;
};
// code 0: done. number: of add, the sum.
struct StoreReply {
  uint64_t id = 0;
  uint16_t code = 0;  // 0, or an ErrorCode, and value its sentence
  std::string value;
  int64_t number = 0;
  bool operator==(const StoreReply&) const = default;
};

// The type on the wire is the place in this list, from 1.
using Message =
    std::variant<HelloMessage, ProofMessage, WelcomeMessage, JoinMessage, RefusedMessage,
                 ViewMessage, BeatMessage, LeaveMessage, ReportMessage, StoreRequest, StoreReply>;

// Appends the frame of `message`. Texts longer than their limit are a bug.
void append_frame(std::string& out, const Message& message);
// The fields of a frame whose length has been taken off: version, type and the rest.
// Errors: bad_value; lost_rank for another version of the protocol, naming both.
Result<Message> parse_frame(std::string_view frame);
// Length of the frame at the front, its first four bytes not counted; nothing while those are not
// there. Errors: bad_value when it is below 2 or above `most_bytes`.
Result<std::optional<size_t>> frame_length(std::string_view bytes, size_t most_bytes);

}  // namespace hocket
