// Distinct integer types, so that a page cannot be taken for a token. value() returns the number.
#pragma once

#include <cstdint>
#include <type_traits>

namespace hocket {

enum class TokenId : int32_t {};     // an entry of the vocabulary
enum class PageId : int32_t {};      // a KV page; kNoPage: none
enum class RequestId : uint64_t {};  // unique in this process, never reused

inline constexpr PageId kNoPage{-1};

template <class Id>
  requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> value(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace hocket
