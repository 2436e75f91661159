#include "compute/kv/page_seal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <bit>
#include <cstddef>
#include <memory>

#include "base/check.h"

namespace hocket {
namespace {

static_assert(std::endian::native == std::endian::little);

using Sum = std::array<uint8_t, 32>;

Sum plain_sum(const PageSeal& seal, std::span<const std::byte> page) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  HOCKET_CHECK(EVP_DigestInit_ex2(context.get(), EVP_sha256(), nullptr) == 1);
  HOCKET_CHECK(EVP_DigestUpdate(context.get(), &seal, offsetof(PageSeal, sum)) == 1);
  HOCKET_CHECK(EVP_DigestUpdate(context.get(), page.data(), page.size()) == 1);
  Sum sum{};
  HOCKET_CHECK(EVP_DigestFinal_ex(context.get(), sum.data(), nullptr) == 1);
  return sum;
}

Sum keyed_sum(const PageSeal& seal, std::span<const std::byte> page, std::string_view secret) {
  static EVP_MAC* const hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);  // for good
  HOCKET_CHECK(hmac != nullptr);
  const std::unique_ptr<EVP_MAC_CTX, void (*)(EVP_MAC_CTX*)> context(EVP_MAC_CTX_new(hmac),
                                                                     EVP_MAC_CTX_free);
  char digest[] = "SHA256";
  const OSSL_PARAM how[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end(),
  };
  const auto bytes_of = [](const void* bytes) { return static_cast<const unsigned char*>(bytes); };
  HOCKET_CHECK(EVP_MAC_init(context.get(), bytes_of(secret.data()), secret.size(), how) == 1);
  HOCKET_CHECK(EVP_MAC_update(context.get(), bytes_of(&seal), offsetof(PageSeal, sum)) == 1);
  HOCKET_CHECK(EVP_MAC_update(context.get(), bytes_of(page.data()), page.size()) == 1);
  Sum sum{};
  size_t length = 0;
  HOCKET_CHECK(EVP_MAC_final(context.get(), sum.data(), &length, sum.size()) == 1);
  return sum;
}

Sum sum_of(const PageSeal& seal, std::span<const std::byte> page, std::string_view secret) {
  return secret.empty() ? plain_sum(seal, page) : keyed_sum(seal, page, secret);
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
