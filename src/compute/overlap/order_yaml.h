// Reads orders from text. The orders that it accepts are legal for every kind of layer.   Thread:
// any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/overlap/order.h"

namespace hocket {

inline constexpr size_t kMostOrderBytes = 256 * 1024;  // the longest file

struct OrderDocument {
  Order order;
  int line = 0;  // line of the order's name
};

// Returns all documents of a text. `where` names the text in errors: "my.yaml". Errors: bad_value,
// with line, slots and what to change.
Result<std::vector<OrderDocument>> parse_orders(std::string_view yaml, std::string_view where);

}  // namespace hocket
