#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>

#include "base/check.h"
#include "server/front_door.h"

namespace hocket {

std::string rank_key(std::string_view secret) {
  if (secret.empty()) return {};
  constexpr std::string_view kWhat = "hocket http";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  HOCKET_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                    reinterpret_cast<const unsigned char*>(kWhat.data()), kWhat.size(),
                    digest.data(), &length) != nullptr);
  std::string key;
  for (unsigned int i = 0; i < length; ++i) key += fmt::format("{:02x}", digest[i]);
  return key;
}

}  // namespace hocket
