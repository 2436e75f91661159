// Keys as requests carry them.   Thread: any.
#pragma once

#include <string_view>

#include "server/wire/http.h"

namespace hocket {

// Equal, in a time that depends on the length of `given` alone.
bool same_key(std::string_view given, std::string_view key);

// The key in `Authorization: Bearer KEY` or `x-api-key: KEY`; empty when there is none.
std::string_view given_key(const HttpRequest& request);

}  // namespace hocket
