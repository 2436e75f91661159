// Collects comparisons of one quantity into a CheckLine.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/check/checker.h"

namespace hocket {

// The prompt, position and layer from which a number is. The failure with the lowest layer is
// reported.
struct Origin {
  std::string_view prompt;
  int position = 0;
  int layer = -1;  // -1: none
};

class Quantity {
 public:
  Quantity(std::string name, Tolerance tolerance) {
    line_.quantity = std::move(name);
    line_.tolerance = tolerance;
  }

  // Compares numbers within the tolerance; NaN always fails.
  void near(std::span<const float> got, std::span<const float> want, const Origin& origin);
  void near(double got, double want, const Origin& origin);
  // Compares exactly, whatever the tolerance.
  void equal(int64_t got, int64_t want, const Origin& origin);

  const CheckLine& line() const { return line_; }

 private:
  void failed(const Origin& origin, double got, double want);

  CheckLine line_;
  int failed_layer_ = 0;
};

}  // namespace hocket
