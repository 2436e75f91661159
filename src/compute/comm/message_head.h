// The head of every message between ranks: 64 bytes, so that what follows is aligned like the slot.
// Its sum covers only the head; the networks below check what they carry.
//
//   magic | version lane kind | epoch | from layer | step | bytes
//   | pushed at | least travel seen of the receiver's | room for later | sum
//
// Source: docs/contracts/expert_parallel.md.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "compute/comm/peer_clock.h"
#include "compute/comm/transport.h"

namespace hocket {

struct MessageHead {
  static constexpr uint32_t kMagic = 0x544b4f48;  // "HOKT"
  static constexpr uint16_t kVersion = 2;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint8_t lane = 0;
  uint8_t kind = 0;
  uint32_t epoch = 0;
  uint16_t from = 0;
  uint16_t layer = 0;
  uint64_t step = 0;
  uint64_t num_bytes = 0;  // without the head
  // These are for peer_clock.h and are not compared.
  int64_t pushed_ns = 0;              // time of the push by the sender's clock
  int64_t min_ns = PeerClock::kNone;  // the sender's PeerClock::min_seen() for the receiver
  uint64_t later = 0;
  uint64_t sum = 0;
};
static_assert(sizeof(MessageHead) == 64);
static_assert(std::has_unique_object_representations_v<MessageHead>);
static_assert(std::endian::native == std::endian::little);

// Returns the sum of all other words; damage to any one word changes it.
uint64_t sum_of(const MessageHead& head);
// Returns "dispatch of step 7, layer 2"; an agreement has no layer.
std::string name_of_message(MessageKind kind, uint64_t step, int layer);
// Returns half a sentence why `message` is not the expected one; empty if it is. Epoch, sender,
// lane, kind, step and layer are compared; `expected` needs no length and no sum.
std::string mismatch(std::span<const std::byte> message, const MessageHead& expected);

}  // namespace hocket
