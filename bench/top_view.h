// One frame of `hocket top`: a server's metrics as a page of text.   Thread: any.
#pragma once

#include <cstdint>
#include <string>

#include "bench/metric_text.h"

namespace hocket {

struct TopFrame {
  std::string title;           // where the server is, and what it serves
  double seconds = 0;          // from `before` to `now`; 0: since the server's start
  int columns = 80, rows = 0;  // what is wider or longer is cut; 0: no limit
  enum class Style : uint8_t { plain, color } style = Style::plain;
};

std::string draw_top(const MetricView& now, const MetricView& before, const TopFrame& frame);

}  // namespace hocket
