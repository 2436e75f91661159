// Draws one frame of `hocket top`: a server's metrics as a page of text.   Thread: any.
#pragma once

#include <cstdint>
#include <string>

#include "client/metric_text.h"

namespace hocket {

struct TopFrame {
  std::string title;           // the server's address and model
  double seconds = 0;          // time from `before` to `now`; 0: `now` counts from the start
  int columns = 80, rows = 0;  // the page is cut to this size; 0: no limit
  enum class Style : uint8_t { plain, color } style = Style::plain;
};

// Returns the page. Rates and latencies are those between `before` and `now`.
std::string draw_top(const MetricView& now, const MetricView& before, const TopFrame& frame);

}  // namespace hocket
