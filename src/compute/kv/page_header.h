// The head of a page that lies outside of the pool, in a file or in a store on the network:
//
//   | magic, bytes of the page, key, sum of all that and the page | the page |
//
// The sum is SHA-256, or with a secret HMAC-SHA-256 under it, so that only who knows the secret can
// make a page that fits. Numbers are little-endian.   Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hocket {

using PageKey = std::array<uint8_t, 32>;

struct PageHeader {
  static constexpr uint64_t kMagic = 0x0031'4547'4150'4b48;  // "HKPAGE1"

  uint64_t magic = kMagic;
  uint64_t page_bytes = 0;
  PageKey key{};
  std::array<uint8_t, 32> sum{};

  // Returns true if this is the head of such a page, whatever its sum says.
  bool names(const PageKey& of, uint64_t num_bytes) const {
    return magic == kMagic && key == of && page_bytes == num_bytes;
  }
};
static_assert(sizeof(PageHeader) == 80);

PageHeader make_page_header(const PageKey& key, std::span<const std::byte> page,
                            std::string_view secret = {});
// Returns true if `header` was made of this page, whole and unchanged.
bool fits(const PageHeader& header, const PageKey& key, std::span<const std::byte> page,
          std::string_view secret = {});

}  // namespace hocket
