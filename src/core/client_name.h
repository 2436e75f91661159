// A client as one number of two halves: what is proven of it and what it claims.
//
//   proven    what the server knows: the client's own key, else the address that it comes from
//   claimed   what the client says: a key that nobody checks, or its `user`; where it says nothing,
//             what is proven
//
// One client may claim a thousand names. So turns that go by `claimed` can be gained by claiming
// more names; turns that go by `proven` cannot.
// Thread: any.
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
