// Orders as text. The orders that are read are legal for every kind of layer.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/overlap/order.h"

namespace hocket {

inline constexpr size_t kMaxOrderBytes = 256 * 1024;  // the longest file

struct OrderDocument {
  Order order;
  int line = 0;  // line of the order's name
};

// Returns all documents of a text. `where` names the text in errors: "my.yaml". Errors: bad_value,
// with line, slots and what to change.
Result<std::vector<OrderDocument>> parse_orders(std::string_view yaml, std::string_view where);

// Returns all documents of a file. Errors: io (it cannot be read), those of parse_orders().
Result<std::vector<OrderDocument>> read_orders(const std::string& path);
// Reads one document as in orders/*.yaml. The order must be legal for every kind of layer: each
// operation is in it once for each half. `where` names the text in errors: "my.yaml". Errors:
// bad_value.
//
//   name: four-phase
//   halves: 2
//   slots: [a.attn_in, a.attn_core, a.mlp, b-.combine_wait, ...]   # `b-`: one layer behind
Result<Order> parse_order(std::string_view yaml, std::string_view where);
// Returns the order as text that parse_order() reads.
std::string to_yaml(const Order& order);

}  // namespace hocket
