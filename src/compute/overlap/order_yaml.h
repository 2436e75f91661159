// Orders as text. What is accepted is legal for every kind of layer.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/overlap/order.h"

namespace hocket {

inline constexpr size_t kMostOrderBytes = 256 * 1024;  // of a file

struct OrderDocument {
  Order order;
  int line = 0;  // of its name
};

// All documents of a text. `where`: for errors, "my.yaml". Errors: bad_value, with line, slots and
// what to change.
Result<std::vector<OrderDocument>> parse_orders(std::string_view yaml, std::string_view where);

}  // namespace hocket
