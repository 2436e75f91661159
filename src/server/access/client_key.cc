#include "server/access/client_key.h"

#include <openssl/evp.h>

#include <array>
#include <charconv>
#include <cstring>
#include <string>

#include "core/client_name.h"
#include "server/access/api_key.h"
#include "server/access/request_sender.h"

namespace hocket {

uint64_t name_key(std::string_view kind, std::string_view name) {
  if (name.empty()) return 0;
  const std::string text = std::string(kind) + '\0' + std::string(name);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  uint64_t key = 0;
  std::memcpy(&key, digest.data(), sizeof key);
  return key;
}

uint64_t client_key(const HttpRequest& request, std::string_view user) {
  if (const Principal* who = principal_of(request); who != nullptr && who->alone) {
    const uint64_t own = name_key("principal", who->name);
    return client_name(own, own);
  }
  const uint64_t address =
      name_key("address", std::string_view(request.client).substr(0, request.client.rfind(':')));
  const std::string_view given = given_key(request);
  if (!given.empty() && principal_name(request) == Principal().name)
    return client_name(address, name_key("key", given));
  return client_name(address, user.empty() ? address : name_key("user", user));
}

uint64_t client_from_rank(const HttpRequest& request) {
  const std::string_view text = request.header(kClientHeader);
  uint64_t key = 0;
  std::from_chars(text.data(), text.data() + text.size(), key);
  return key;
}

uint64_t proven_client_hash(const HttpRequest& request) {
  const uint64_t from_rank = is_from_rank(request) ? client_from_rank(request) : 0;
  return proven_client(from_rank != 0 ? from_rank : client_key(request, ""));
}

}  // namespace hocket
