// Asks for pages of a mapped file and gives them back. Private to the room.   Thread: any.
#pragma once

#include <cstddef>
#include <span>

namespace hocket {

// Has the kernel read the pages of `part`, if it lies in `map`, and does not wait for them. Nothing
// is mapped.
void fetch_pages(std::span<const std::byte> map, std::span<const std::byte> part);

// Removes the pages of `part` from this process, if it lies in `map`. The kernel keeps them cached
// while it has room, so a restart is fast, and pages that are read again come from there.
void drop_pages(std::span<const std::byte> map, std::span<const std::byte> part);

}  // namespace hocket
