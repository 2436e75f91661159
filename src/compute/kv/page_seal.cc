#include "compute/kv/page_seal.h"

#include <openssl/evp.h>

#include <bit>
#include <cstddef>
#include <memory>

#include "base/check.h"
#include "compute/kv/keyed_sum.h"

namespace hocket {
namespace {

static_assert(std::endian::native == std::endian::little);

using SealSum = std::array<uint8_t, 32>;

// Returns the part of the head that its sum covers.
std::span<const std::byte> summed_part(const PageSeal& seal) {
  return std::as_bytes(std::span(&seal, 1)).first(offsetof(PageSeal, sum));
}

SealSum plain_sum(const PageSeal& seal, std::span<const std::byte> page) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  HOCKET_CHECK(EVP_DigestInit_ex2(context.get(), EVP_sha256(), nullptr) == 1);
  for (const auto part : {summed_part(seal), page})
    HOCKET_CHECK(EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1);
  SealSum sum{};
  HOCKET_CHECK(EVP_DigestFinal_ex(context.get(), sum.data(), nullptr) == 1);
  return sum;
}

SealSum sum_of(const PageSeal& seal, std::span<const std::byte> page, std::string_view secret) {
  return secret.empty() ? plain_sum(seal, page) : keyed_sum(secret, {summed_part(seal), page});
}

}  // namespace

PageSeal seal_page(const PageKey& key, std::span<const std::byte> page, std::string_view secret) {
  PageSeal seal{.page_bytes = page.size(), .key = key};
  seal.sum = sum_of(seal, page, secret);
  return seal;
}

bool fits(const PageSeal& seal, const PageKey& key, std::span<const std::byte> page,
          std::string_view secret) {
  return seal.names(key, page.size()) && seal.sum == sum_of(seal, page, secret);
}

}  // namespace hocket
