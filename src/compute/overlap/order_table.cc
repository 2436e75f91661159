#include "compute/overlap/order_table.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/mix.h"
#include "compute/overlap/embedded_orders.h"
#include "compute/overlap/order_yaml.h"

namespace hocket {
namespace {

constexpr size_t kMostTableOrders = size_t{1} << 16;  // PlanId has 16 bits for the order

uint32_t fingerprint_of(const std::vector<Order>& orders) {
  uint64_t sum = kMixStep;
  const auto add = [&](uint64_t value) { sum = mix64(sum ^ value) + kMixStep; };
  for (const Order& order : orders) {
    for (const char c : order.name) add(static_cast<uint8_t>(c));
    add(uint64_t{0x100} + order.num_halves);
    for (const Slot& slot : order.slots)
      add(uint64_t{slot.half} << 16 | uint64_t{static_cast<uint8_t>(slot.op)} << 8 | slot.lag);
    add(uint64_t{0x200});
  }
  return static_cast<uint32_t>(mix64(sum) >> 32);
}

// Returns the period from half a's first operation on, as numbers. Two orders play the same if and
// only if these numbers are equal.
std::vector<int> steady_of(const Order& order) {
  const auto is_begin = [](const Slot& s) { return s.half == 0 && s.op == Op::attn_in; };
  const auto begin = std::ranges::find_if(order.slots, is_begin);
  std::vector<int> numbers;
  const auto add = [&](const Slot& slot, int lag) {
    numbers.push_back((slot.half * kNumOps + static_cast<int>(slot.op)) * 256 + 64 + lag);
  };
  for (auto slot = begin; slot != order.slots.end(); ++slot) add(*slot, slot->lag - begin->lag);
  for (auto slot = order.slots.begin(); slot != begin; ++slot)
    add(*slot, slot->lag - begin->lag - 1);
  return numbers;
}

std::vector<Order> read_embedded() {
  std::vector<Order> orders;
  for (const std::string_view text : embedded_orders()) {
    Result<Order> order = parse_order(text, "orders/*.yaml");
    if (!order) check_failed(__FILE__, __LINE__, describe(order.error()));
    orders.push_back(*std::move(order));
  }
  std::ranges::sort(orders, {},
                    [](const Order& o) { return std::pair(o.name != "serial", o.name); });
  HOCKET_CHECK(orders.front().name == "serial");
  return orders;
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    // One byte more than the limit, so that a longer file is noticed.
    text.resize(kMostOrderBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad())
    return fail(error(ErrorCode::io, "cannot read {}", path)
                    .with_fix("--overlap-plan with the path of a file of orders"));
  return text;
}

}  // namespace

const Order& serial_order() {
  return OrderTable::builtin().at(0);
}

const OrderTable& OrderTable::builtin() {
  static const OrderTable table = [] {
    OrderTable made;
    made.orders_ = read_embedded();
    made.found_begin_ = made.size();
    std::vector<std::vector<int>> named;
    for (const Order& order : made.orders_) named.push_back(steady_of(order));
    for (Order& order : all_two_half_orders())
      if (std::ranges::find(named, steady_of(order)) == named.end())
        made.orders_.push_back(std::move(order));
    made.user_begin_ = made.size();
    made.fingerprint_ = fingerprint_of(made.orders_);
    return made;
  }();
  return table;
}

Result<OrderTable> OrderTable::with_file(const std::string& path) {
  HOCKET_TRY(const std::string text, read_text(path));
  HOCKET_TRY(std::vector<OrderDocument> documents, parse_orders(text, path));
  OrderTable table = builtin();
  for (OrderDocument& document : documents) {
    if (table.find(document.order.name) >= 0)
      return fail(error(ErrorCode::bad_value, "{}:{}: there is an order {} already", path,
                        document.line, document.order.name)
                      .with_fix("another name"));
    table.orders_.push_back(std::move(document.order));
  }
  HOCKET_CHECK(table.orders_.size() <= kMostTableOrders);
  table.fingerprint_ = fingerprint_of(table.orders_);
  return table;
}

int OrderTable::find(std::string_view name) const {
  const auto found = std::ranges::find(orders_, name, &Order::name);
  return found == orders_.end() ? -1 : static_cast<int>(found - orders_.begin());
}

std::string OrderTable::names() const {
  std::string all;
  for (int i = 0; i < size(); ++i)
    if (i < found_begin_ || i >= user_begin_)
      all += fmt::format("{}{}", all.empty() ? "" : ", ", at(i).name);
  return all;
}

}  // namespace hocket
