// The progress line of loading weights: a line that overwrites itself on a terminal, or a plain
// line every 10 % elsewhere. Thread: the one that loads.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "compute/weights/loader.h"

namespace hocket {

// Returns "weights [########------------]  40 %  16.5 of 41.2 GB  2.10 GB/s  12 s left".
std::string progress_line(std::string_view label, const LoadProgress& progress, double seconds);

class ProgressBar {
 public:
  enum class Style : uint8_t { automatic, bar, lines };  // automatic: bar if `out` is a terminal
  explicit ProgressBar(std::string label, std::FILE* out = stderr, Style style = Style::automatic);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const LoadProgress& progress);

 private:
  const std::string label_;
  std::FILE* const out_;
  const bool bar_;
  const std::chrono::steady_clock::time_point start_;
  int tenths_ = 0;    // tenths reported so far, for style lines
  size_t width_ = 0;  // length of the line on the terminal; 0 if there is none
};

}  // namespace hocket
