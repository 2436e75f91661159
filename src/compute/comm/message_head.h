// What stands in front of every message between ranks: 64 bytes, so that what follows is aligned as
// the slot is. Its sum covers the head only: the networks below check what they carry.
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
  // For peer_clock.h; not compared.
  int64_t pushed_ns = 0;                // by the sender's clock
  int64_t least_ns = PeerClock::kNone;  // what the sender saw of the receiver's messages
  uint64_t later = 0;
  uint64_t sum = 0;
};
static_assert(sizeof(MessageHead) == 64);
static_assert(std::has_unique_object_representations_v<MessageHead>);
static_assert(std::endian::native == std::endian::little);

// Of all other words; damage to any one of them changes it.
uint64_t sum_of(const MessageHead& head);
// "dispatch of step 7, layer 2"; an agreement is of a step.
std::string name_of_message(MessageKind kind, uint64_t step, int layer);
// Why `message` is not the one that was expected, as half a sentence; empty if it is. Epoch,
// sender, lane, kind, step and layer are compared; `expected` needs no length and no sum.
std::string mismatch(std::span<const std::byte> message, const MessageHead& expected);

}  // namespace hocket
