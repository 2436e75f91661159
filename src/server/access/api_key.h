// Compares API keys, and reads them from requests.   Thread: any.
#pragma once

#include <string_view>

#include "server/http/http.h"

namespace hocket {

// Returns true if both are equal. The time depends only on the length of `given`, so it tells a
// client nothing about `key`.
bool same_key(std::string_view given, std::string_view key);

// Returns the key in `Authorization: Bearer KEY` or `x-api-key: KEY`; empty if there is none.
std::string_view given_key(const HttpRequest& request);

}  // namespace hocket
