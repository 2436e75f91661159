// The name of a cached page that every listener can compute for itself from tokens:
//
//   hash of page i = SHA-256(hash of page i - 1 | its tokens, each as 4 bytes, low byte first)
//
// Before the first page stand the 16 bytes of the namespace (high half first, each half low byte
// first; zeros for the common one) and 16 zeros. Source: docs/contracts/cache.md; FIPS 180-4.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "policy/cache/cache_namespace.h"

struct evp_md_ctx_st;

namespace hocket {

using PageHash = std::array<uint8_t, 32>;

PageHash root_hash(const CacheNamespace& name_space);

// Holds the digest's state, so that hashing a page allocates nothing.   Thread: one.
class PageHasher {
 public:
  PageHasher();
  ~PageHasher();
  PageHash operator()(const PageHash& parent, std::span<const TokenId> page) const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace hocket
