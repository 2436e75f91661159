// The keys of stored pages and states: chains of SHA-256 over tokens, as in events
// (policy/cache/page_hash.h), that begin with the form. So a page is never found by a model, a
// layout or an arithmetic that it was not computed for.   Thread: one.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "compute/kv/page_header.h"
#include "policy/cache/cache_namespace.h"
#include "policy/cache/page_hash.h"

namespace hocket {

class PageKeys {
 public:
  // form: a hash of all that the bytes of a page depend on, beside its tokens.
  PageKeys(const PageKey& form, size_t page_tokens) : form_(form), page_tokens_(page_tokens) {}

  // Adds the keys that `keys` lacks of the whole pages of `tokens`.
  void append_to(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                 std::vector<PageKey>& keys) const;
  // The key of a state is made from that of the page that it is behind.
  static PageKey of_state(const PageKey& page);

 private:
  PageKey root_of(const CacheNamespace& name_space) const;

  const PageKey form_;
  const size_t page_tokens_;
  const PageHasher hash_page_;
};

}  // namespace hocket
