#include "engine/pages/page_keys.h"

#include <array>
#include <cstring>

namespace hocket {

PageKey PageKeys::root_of(const CacheNamespace& name_space) const {
  const PageHash name = root_hash(name_space);
  static_assert(sizeof(TokenId) == 4 && sizeof(PageHash) % sizeof(TokenId) == 0);
  std::array<TokenId, sizeof(PageHash) / sizeof(TokenId)> words{};
  std::memcpy(words.data(), name.data(), name.size());
  return hash_page_(form_, words);
}

void PageKeys::append_to(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                         std::vector<PageKey>& keys) const {
  const size_t num_pages = tokens.size() / page_tokens_;
  keys.reserve(num_pages);
  while (keys.size() < num_pages) {
    const PageKey before = keys.empty() ? root_of(name_space) : keys.back();
    keys.push_back(hash_page_(before, tokens.subspan(keys.size() * page_tokens_, page_tokens_)));
  }
}

PageKey PageKeys::of_state(const PageKey& page) {
  static constexpr std::array<TokenId, 1> kMark = {TokenId{-1}};  // no page has such a token
  return PageHasher()(page, kMark);
}

}  // namespace hocket
