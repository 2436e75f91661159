#include "policy/cache/page_hash.h"

#include <openssl/evp.h>

#include <bit>

#include "base/check.h"

namespace hocket {

// Hashes read tokens as they lie in memory.
static_assert(std::endian::native == std::endian::little);

PageHash root_hash(const CacheNamespace& name_space) {
  PageHash hash{};
  for (size_t i = 0; i < 8; ++i) {
    hash[i] = static_cast<uint8_t>(name_space.high >> (8 * i));
    hash[8 + i] = static_cast<uint8_t>(name_space.low >> (8 * i));
  }
  return hash;
}

void PageHasher::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

PageHasher::PageHasher() : context_(EVP_MD_CTX_new()) {
  HOCKET_CHECK(context_ != nullptr);
  HOCKET_CHECK(EVP_DigestInit_ex2(context_.get(), EVP_sha256(), nullptr) == 1);
}

PageHasher::~PageHasher() = default;

PageHash PageHasher::operator()(const PageHash& parent, std::span<const TokenId> page) const {
  PageHash hash;
  EVP_MD_CTX* const context = context_.get();
  HOCKET_CHECK(EVP_DigestInit_ex2(context, nullptr, nullptr) == 1);
  HOCKET_CHECK(EVP_DigestUpdate(context, parent.data(), parent.size()) == 1);
  HOCKET_CHECK(EVP_DigestUpdate(context, page.data(), page.size_bytes()) == 1);
  HOCKET_CHECK(EVP_DigestFinal_ex(context, hash.data(), nullptr) == 1);
  return hash;
}

}  // namespace hocket
