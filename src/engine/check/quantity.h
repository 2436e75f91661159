// Collects comparisons of one quantity into a CheckLine.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/check/checker.h"

namespace hocket {

// The place of a number in the model. The failure with the lowest layer is reported.
struct Place {
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
  void near(std::span<const float> got, std::span<const float> want, const Place& place);
  void near(double got, double want, const Place& place);
  // Compares exactly, whatever the tolerance.
  void equal(int64_t got, int64_t want, const Place& place);

  const CheckLine& line() const { return line_; }

 private:
  void failed(const Place& place, double got, double want);

  CheckLine line_;
  int failed_layer_ = 0;
};

}  // namespace hocket
