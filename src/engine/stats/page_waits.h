// The reasons for which a request that has arrived is held until its pages are there.
// Thread: any.
#pragma once

#include <array>
#include <cstdint>

namespace hocket {

enum class PageWait : uint8_t {
  store,  // its pages are read from files, a Redis or a peer's files
  room,   // a peer may compute it as soon as the pool has room for its pages
  peer,   // a peer computes it, and its pages come
};
inline constexpr int kNumPageWaits = 3;

template <class T>
using ByPageWait = std::array<T, kNumPageWaits>;

}  // namespace hocket
