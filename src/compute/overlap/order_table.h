// The table of orders. Messages between ranks name an order by its index here. The table has the
// embedded orders (orders/*.yaml: serial first, then by name), then those of --overlap-plan. Ranks
// connect only if their tables are equal (fingerprint()). Immutable. Thread: any.
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
  // Returns builtin() and behind it `more`: legal orders with names of their own.
  static OrderTable with(std::vector<Order> more);
  // Returns builtin() and behind it the orders of a file, which may hold several YAML documents.
  // Errors: io (cannot be read), bad_value (not an order, one that is illegal, a name that is
  // taken; with line and slots).
  static Result<OrderTable> with_file(const std::string& path);

  int size() const { return static_cast<int>(orders_.size()); }
  const Order& at(int index) const { return orders_[static_cast<size_t>(index)]; }
  // Returns the index of the order with this name; -1 if there is none.
  int find(std::string_view name) const;
  // The table holds the embedded orders in [0, user_begin()), and others behind them.
  int user_begin() const { return user_begin_; }
  std::string names() const;  // "serial, four-phase, ..."
  uint32_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<Order> orders_;
  int user_begin_ = 0;
  uint32_t fingerprint_ = 0;
};

}  // namespace hocket
