// Numbers and lines as `hocket plan` prints them.   Thread: any.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hocket {

inline std::string parameters(int64_t count) {
  const auto number = static_cast<double>(count);
  if (number < 1e5) return fmt::format("{:.2f} K", number / 1e3);
  if (number < 1e8) return fmt::format("{:.2f} M", number / 1e6);
  return fmt::format("{:.2f} B", number / 1e9);
}

inline std::string rate(double per_s) {
  return per_s < 1    ? fmt::format("{:.2f}", per_s)
         : per_s < 10 ? fmt::format("{:.1f}", per_s)
                      : fmt::format("{:.0f}", per_s);
}

// Prints a line of the table.
inline void print_line(std::string_view name, const std::string& value,
                       const std::string& note = "") {
  fmt::print("  {:<18}{:>12}{}{}\n", name, value, note.empty() ? "" : "  ", note);
}

}  // namespace hocket
