// Names a client by one number of two halves: one is proven, one the client claims.
//
//   proven    the server knows it: the client's own key, else its address
//   claimed   the client says it: a key that the server does not check, or its `user`; if it says
//             nothing, the proven half
//
// A client may claim a thousand names. So sharing turns by `claimed` gives more turns to a client
// that claims more names; sharing by `proven` does not. Thread: any.
#pragma once

#include <cstdint>

namespace hocket {

// Joins the lower 32 bits of each argument.
constexpr uint64_t client_name(uint64_t proven, uint64_t claimed) {
  return (proven << 32) | (claimed & UINT32_MAX);
}
constexpr uint64_t proven_client(uint64_t name) {
  return name >> 32;
}
constexpr uint64_t claimed_client(uint64_t name) {
  return name & UINT32_MAX;
}

}  // namespace hocket
