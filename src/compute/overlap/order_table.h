// All orders that ranks may name to each other, by number: the embedded ones (orders/*.yaml, serial
// first, then by name), then all_two_half_orders() but for those that are embedded under a name,
// then those of --overlap-plan. Equal on all ranks or they do not meet (fingerprint()). Immutable.
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
  // Without a user's file.
  static const OrderTable& builtin();
  // And the orders of a file, which may hold several YAML documents. Errors: io (cannot be read),
  // bad_value (not an order, one that is illegal, a name that is taken; with line and slots).
  static Result<OrderTable> with_file(const std::string& path);

  int size() const { return static_cast<int>(orders_.size()); }
  const Order& at(int index) const { return orders_[static_cast<size_t>(index)]; }
  // Of a name; -1: none has it.
  int find(std::string_view name) const;
  // The embedded ones, those found by enumeration, the user's: [0, found_begin), [.., user_begin),
  // [.., size()).
  int found_begin() const { return found_begin_; }
  int user_begin() const { return user_begin_; }
  std::string names() const;  // of embedded and user's orders, "serial, four-phase, ..."
  uint32_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<Order> orders_;
  int found_begin_ = 0, user_begin_ = 0;
  uint32_t fingerprint_ = 0;
};

// One document as in orders/*.yaml, legal for every kind of layer: each operation stands in it once
// for each half. `where`: for errors, "my.yaml". Errors: bad_value.
//
//   name: four-phase
//   halves: 2
//   slots: [a.attn_in, a.attn_core, a.mlp, b-.combine_wait, ...]   # `b-`: one layer behind
Result<Order> parse_order(std::string_view yaml, std::string_view where);
// As it may be read again.
std::string to_yaml(const Order& order);

// Every legal order of two halves in which each transfer starts as soon as what it carries is
// there and is waited for only when its rows are needed: what remains is the order of computing.
// Of two that differ in the halves' names alone, the one in which half a leads by less. 288 of
// them, always in the same sequence, "found-0000" and on.
std::vector<Order> all_two_half_orders();

}  // namespace hocket
