// Who may ask. With a key set, every path needs it but /health, /livez and
// /readyz, and the page, which holds no data.
// Thread: any.
#pragma once

#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace hocket {

// Equal, in a time that depends on the length of `given` alone.
bool same_key(std::string_view given, std::string_view key);

// The key in `Authorization: Bearer KEY` or `x-api-key: KEY`; empty when there is none.
std::string_view given_key(const HttpRequest& request);

// Whose key a request carries. An empty key lets everybody in.
// Errors: unauthorized.
Result<PrincipalPtr> authorize(const HttpRequest& request, std::string_view key);

}  // namespace hocket
