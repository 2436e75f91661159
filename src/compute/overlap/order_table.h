// The table of all orders, by number, which is how ranks name them to each other: the embedded ones
// (orders/*.yaml, serial first, then by name), then all_two_half_orders() except those that are
// embedded under a name, then those of --overlap-plan. Ranks only meet if their tables are equal
// (fingerprint()). Immutable.
// Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/overlap/order.h"

namespace hocket {

class OrderTable {
 public:
  // Returns the table without a user's file.
  static const OrderTable& builtin();
  // Returns builtin() and behind it the orders of a file, which may hold several YAML documents.
  // Errors: io (cannot be read), bad_value (not an order, one that is illegal, a name that is
  // taken; with line and slots).
  static Result<OrderTable> with_file(const std::string& path);

  int size() const { return static_cast<int>(orders_.size()); }
  const Order& at(int index) const { return orders_[static_cast<size_t>(index)]; }
  // Returns the index of the order with this name; -1 if there is none.
  int find(std::string_view name) const;
  // The table holds the embedded orders in [0, found_begin()), those found by enumeration in
  // [found_begin(), user_begin()), and the user's in [user_begin(), size()).
  int found_begin() const { return found_begin_; }
  int user_begin() const { return user_begin_; }
  std::string names() const;  // embedded and user's orders: "serial, four-phase, ..."
  uint32_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<Order> orders_;
  int found_begin_ = 0, user_begin_ = 0;
  uint32_t fingerprint_ = 0;
};

// Reads one document as in orders/*.yaml. The order must be legal for every kind of layer: each
// operation stands in it once for each half. `where` names the text in errors: "my.yaml". Errors:
// bad_value.
//
//   name: four-phase
//   halves: 2
//   slots: [a.attn_in, a.attn_core, a.mlp, b-.combine_wait, ...]   # `b-`: one layer behind
Result<Order> parse_order(std::string_view yaml, std::string_view where);
// Returns the order as text that parse_order() reads.
std::string to_yaml(const Order& order);

// Returns every legal order of two halves in which each transfer starts as soon as its data are
// there and is waited for only when its rows are needed; so they differ in the sequence of
// computing alone. If two differ only in the halves' names, the one in which half a leads by less
// is taken. There are 288, always in the same sequence, named "found-0000" and on.
std::vector<Order> all_two_half_orders();

}  // namespace hocket
