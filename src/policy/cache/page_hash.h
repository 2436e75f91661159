// Names a cached page, so that every listener can compute the name from tokens alone:
//
//   hash of page i = SHA-256(hash of page i - 1 | its tokens, each as 4 bytes, low byte first)
//
// The hash before the first page is made of the 16 bytes of the namespace (high half first, each
// half low byte first; zeros for the common namespace) and 16 zeros. Source:
// docs/contracts/cache.md; FIPS 180-4.
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

// Keeps the digest's state, so that hashing a page allocates nothing.   Thread: one.
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
