#include "compute/weights/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace hocket {
namespace {

constexpr int kCells = 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double fraction(const LoadProgress& p) {
  return p.bytes_total <= 0 ? 1.0 : std::clamp(double(p.bytes_done) / p.bytes_total, 0.0, 1.0);
}

}  // namespace

std::string progress_line(std::string_view label, const LoadProgress& progress, double seconds) {
  const double part = fraction(progress);
  const auto cells = static_cast<int>(part * kCells);
  std::string line = fmt::format("{} [{:#<{}}{:-<{}}] {:3.0f} %", label, "", cells, "",
                                 kCells - cells, std::floor(part * 100));
  const bool small = progress.bytes_total < 1'000'000'000;
  const double unit = small ? 1e6 : 1e9;
  line += fmt::format("  {:.1f} of {:.1f} {}", progress.bytes_done / unit,
                      progress.bytes_total / unit, small ? "MB" : "GB");
  if (seconds <= 0 || progress.bytes_done <= 0) return line;
  const double rate = progress.bytes_done / seconds;
  line += fmt::format("  {:.2f} GB/s", rate / 1e9);
  if (part < 1)
    return line +
           fmt::format("  {:.0f} s left", (progress.bytes_total - progress.bytes_done) / rate);
  return line + fmt::format("  in {:.1f} s", seconds);
}

ProgressBar::ProgressBar(std::string label, std::FILE* out, Style style)
    : label_(std::move(label)),
      out_(out),
      bar_(style == Style::bar || (style == Style::automatic && isatty(fileno(out)) == 1)),
      start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (width_ > 0) std::fputc('\n', out_);
}

void ProgressBar::update(const LoadProgress& progress) {
  const int tenths = static_cast<int>(fraction(progress) * 10);
  if (!bar_ && tenths <= tenths_) return;
  tenths_ = tenths;
  std::string line = progress_line(label_, progress, seconds_since(start_));
  if (!bar_) {
    std::fprintf(out_, "%s\n", line.c_str());
  } else {
    // Spaces cover the rest of a longer line.
    const size_t width = line.size();
    line.resize(std::max(width, width_), ' ');
    std::fprintf(out_, "\r%s", line.c_str());
    width_ = width;
  }
  std::fflush(out_);
}

}  // namespace hocket
