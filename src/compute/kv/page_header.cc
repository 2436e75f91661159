#include "compute/kv/page_header.h"

#include <openssl/evp.h>

#include <bit>
#include <cstddef>
#include <memory>

#include "base/check.h"
#include "compute/kv/hmac.h"

namespace hocket {
namespace {

static_assert(std::endian::native == std::endian::little);

using SealSum = std::array<uint8_t, 32>;

// Returns the part of the head that its sum covers.
std::span<const std::byte> summed_part(const PageHeader& header) {
  return std::as_bytes(std::span(&header, 1)).first(offsetof(PageHeader, sum));
}

SealSum plain_sum(const PageHeader& header, std::span<const std::byte> page) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  HOCKET_CHECK(EVP_DigestInit_ex2(context.get(), EVP_sha256(), nullptr) == 1);
  for (const auto part : {summed_part(header), page})
    HOCKET_CHECK(EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1);
  SealSum sum{};
  HOCKET_CHECK(EVP_DigestFinal_ex(context.get(), sum.data(), nullptr) == 1);
  return sum;
}

SealSum sum_of(const PageHeader& header, std::span<const std::byte> page, std::string_view secret) {
  return secret.empty() ? plain_sum(header, page)
                        : hmac_sha256(secret, {summed_part(header), page});
}

}  // namespace

PageHeader make_page_header(const PageKey& key, std::span<const std::byte> page,
                            std::string_view secret) {
  PageHeader header{.page_bytes = page.size(), .key = key};
  header.sum = sum_of(header, page, secret);
  return header;
}

bool fits(const PageHeader& header, const PageKey& key, std::span<const std::byte> page,
          std::string_view secret) {
  return header.names(key, page.size()) && header.sum == sum_of(header, page, secret);
}

}  // namespace hocket
