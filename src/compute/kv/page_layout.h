// The bytes of a page outside of the pool, as PagePool::save_page() writes them, and the way from
// pages of one size to pages of another: tokens keep their bytes and change their places.
//
//   page of 64 tokens   | layer 0: tokens 0 .. 63            | layer 1: ..                        |
//   pages of 32         | layer 0: 0 .. 31  | layer 1: .. |    | layer 0: 32 .. 63 | layer 1: .. |
//
// Pure values.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/kernels/kv_layout.h"

namespace hocket {

struct PageLayout {
  // Sizes of pages that kernels know: powers of two up to this.
  static constexpr int kMaxTokens = 128;

  std::vector<KvShape> layers;  // all of one page_tokens

  int page_tokens() const { return layers.front().page_tokens; }
  int64_t page_bytes() const;
  // Returns the layout of the same layers in pages of that many tokens.
  PageLayout with_tokens(int page_tokens) const;
};

// Neighbouring tokens: those of a page from `from` on become those of another from `to` on.
struct TokenMove {
  int from = 0, to = 0, count = 0;
};

// Copies keys, values and scales of the tokens from a page of layout `from_layout` to one of
// `to_layout`. Padding is not copied where the order of numbers differs, so `to` is zero before the
// first call, as a page of the pool is.
// Precondition: the layouts are of the same layers; spans have page_bytes(); the move lies inside
// both pages, and where both have 32 tokens or more, it begins and ends at multiples of 32.
void copy_tokens(const PageLayout& from_layout, std::span<const std::byte> from,
                 const PageLayout& to_layout, std::span<std::byte> to, const TokenMove& move);

}  // namespace hocket
