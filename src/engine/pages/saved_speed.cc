#include "engine/pages/saved_speed.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <fstream>
#include <span>
#include <string>

#include "base/whole_file.h"
#include "compute/kv/page_folders.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

// A file with any other time of a row is not ours.
constexpr double kMinRowSeconds = 1e-9, kMaxRowSeconds = 1e3;

}  // namespace

double load_row_seconds(const fs::path& folder) {
  const fs::path path = folder / kSpeedFile;
  std::error_code problem;
  if (!fs::is_regular_file(path, problem)) return 0;
  std::array<char, 32> text{};
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), text.size());
  double seconds = 0;
  const char* end = text.data() + file.gcount();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  const bool is_whole = error == std::errc() && stop + 1 == end && *stop == '\n';
  return is_whole && seconds >= kMinRowSeconds && seconds <= kMaxRowSeconds ? seconds : 0;
}

bool save_row_seconds(const fs::path& folder, double seconds) {
  const std::string text = fmt::format("{:.3e}\n", seconds);
  return write_whole_file(folder / kSpeedFile, {std::as_bytes(std::span(text))}) == 0;
}

}  // namespace hocket
