#include "server/access/api_key.h"

#include <algorithm>

#include "server/http/request_target.h"

namespace hocket {

bool same_key(std::string_view given, std::string_view key) {
  if (key.empty()) return given.empty();
  volatile unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference = difference | static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  return difference == 0;
}

std::string_view given_key(const HttpRequest& request) {
  const std::string_view bearer = request.header("authorization");
  if (bearer.empty()) return request.header("x-api-key");
  const size_t space = bearer.find(' ');
  if (space == bearer.npos || !same_name(bearer.substr(0, space), "bearer"))
    return request.header("x-api-key");
  return bearer.substr(std::min(bearer.find_first_not_of(' ', space), bearer.size()));
}

}  // namespace hocket
