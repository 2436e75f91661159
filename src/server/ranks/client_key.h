// Who asks, as one number: for the policy `fair`, which shares the server among clients by what
// they claim, and for the turns of grammars, which go by what is proven (core/client_name.h).
// Thread: any.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/wire/http.h"

namespace hocket {

// A header in which a rank tells another one client_key() of whom it asks for, in decimal.
inline constexpr const char* kClientHeader = "X-Hocket-Client";

// A 64-bit name of `name` among those of its kind; 0 for an empty name.
uint64_t name_key(std::string_view kind, std::string_view name);

// Proven: the principal of a key that is one client's own, else the address it comes from. Claimed:
// the same principal; where the server asks for no key, the key that the client sends all the same;
// else its `user`, else the address. A key that clients share tells nobody apart.
uint64_t client_key(const HttpRequest& request, std::string_view user);

// The value of kClientHeader; 0 without it. Only for requests that came through the port for ranks.
uint64_t told_client(const HttpRequest& request);

// The proven half of a client's name, known before its body is read. If another rank handed the
// request on, that rank's header tells it.
uint64_t proven_asker(const HttpRequest& request);

}  // namespace hocket
