// HMAC-SHA-256 over parts, as if they were one text: only someone who knows the secret can make
// the sum.
// Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace hocket {

using Hmac = std::array<uint8_t, 32>;

Hmac hmac_sha256(std::string_view secret, std::initializer_list<std::span<const std::byte>> parts);

}  // namespace hocket
