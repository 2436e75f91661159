// Who asks, as one number: for the policy `fair`, which shares the server among clients.
// Thread: any.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/wire/http.h"

namespace hocket {

// A 64-bit name of `name` among those of its kind; 0 for an empty name.
uint64_t name_key(std::string_view kind, std::string_view name);

// The principal of a key that is one client's own; where the server asks for none, the key that the
// client sends all the same; else its `user`, else the address it comes from. A key that clients
// share tells nobody apart.
uint64_t client_key(const HttpRequest& request, std::string_view user);

}  // namespace hocket
