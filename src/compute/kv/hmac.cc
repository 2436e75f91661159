#include "compute/kv/hmac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <memory>

#include "base/check.h"

namespace hocket {

Hmac hmac_sha256(std::string_view secret, std::initializer_list<std::span<const std::byte>> parts) {
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
  // A null would mean that the secret follows later.
  const char* const key = secret.empty() ? "" : secret.data();
  HOCKET_CHECK(EVP_MAC_init(context.get(), bytes_of(key), secret.size(), how) == 1);
  for (const std::span<const std::byte> part : parts)
    HOCKET_CHECK(EVP_MAC_update(context.get(), bytes_of(part.data()), part.size()) == 1);
  Hmac sum{};
  size_t length = 0;
  HOCKET_CHECK(EVP_MAC_final(context.get(), sum.data(), &length, sum.size()) == 1);
  return sum;
}

}  // namespace hocket
