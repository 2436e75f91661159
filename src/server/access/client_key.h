// Turns a client into one number: the policy `fair` shares the server by what clients claim, and
// the turns of grammars go by what is proven (core/client_name.h).
// Thread: any.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/http/http.h"

namespace hocket {

// The header in which a rank sends another one client_key() of the client, in decimal.
inline constexpr const char* kClientHeader = "X-Hocket-Client";

// Returns a 64-bit hash of `name` among the names of its kind; 0 for an empty name.
uint64_t name_key(std::string_view kind, std::string_view name);

// Returns both halves. Proven: the principal if its key belongs to one client, else the client's
// address. Claimed: the same principal; if the server needs no key, the key that the client sends
// anyway; else its `user`, else the address. A shared key does not distinguish clients.
uint64_t client_key(const HttpRequest& request, std::string_view user);

// Returns the value of kClientHeader; 0 without it. Only for requests that arrived through the port
// for ranks.
uint64_t client_from_rank(const HttpRequest& request);

// Returns the proven half of a client's name, known before the body is read. If another rank
// forwarded the request, the name is read from that rank's header.
uint64_t proven_client_hash(const HttpRequest& request);

}  // namespace hocket
