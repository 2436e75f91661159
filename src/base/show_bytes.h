// Sizes of memory and files as people read them.   Thread: any.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace hocket {

// Returns for example "16.2 kB", "92.1 MB" or "2.15 GB".
inline std::string show_bytes(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}
inline std::string show_bytes(int64_t bytes) {
  return show_bytes(static_cast<double>(bytes));
}

}  // namespace hocket
