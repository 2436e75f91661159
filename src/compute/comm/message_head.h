// What stands in front of every message between ranks: 64 bytes, so that what follows is aligned as
// the slot is. Its sum covers the head only: the networks below check what they carry.
//
//   magic | version lane kind | epoch | from layer | step | bytes | room for later | sum
//
// Source: docs/contracts/expert_parallel.md.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/mix.h"

namespace hocket {

struct MessageHead {
  static constexpr uint32_t kMagic = 0x544b4f48;  // "HOKT"
  static constexpr uint16_t kVersion = 1;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint8_t lane = 0;
  uint8_t kind = 0;
  uint32_t epoch = 0;
  uint16_t from = 0;
  uint16_t layer = 0;
  uint64_t step = 0;
  uint64_t num_bytes = 0;  // without the head
  std::array<uint64_t, 3> later{};
  uint64_t sum = 0;
};
static_assert(sizeof(MessageHead) == 64);
static_assert(std::has_unique_object_representations_v<MessageHead>);
static_assert(std::endian::native == std::endian::little);

// Every step is one-to-one, so damage to any one word changes it.
inline uint64_t sum_of(const MessageHead& head) {
  const auto words = std::bit_cast<std::array<uint64_t, 8>>(head);
  uint64_t sum = kMixStep;
  for (size_t i = 0; i + 1 < words.size(); ++i) sum = mix64(sum ^ words[i]) + kMixStep;
  return sum;
}

}  // namespace hocket
