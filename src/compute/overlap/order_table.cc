#include "compute/overlap/order_table.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/mix.h"
#include "compute/overlap/embedded_orders.h"
#include "compute/overlap/order_yaml.h"

namespace hocket {
namespace {

constexpr size_t kMaxTableOrders = size_t{1} << 16;  // PlanId has 16 bits for the order

uint32_t fingerprint_of(const std::vector<Order>& orders) {
  uint64_t sum = kMixStep;
  const auto add = [&](uint64_t value) { sum = mix64(sum ^ value) + kMixStep; };
  for (const Order& order : orders) {
    for (const char c : order.name) add(static_cast<uint8_t>(c));
    add(uint64_t{0x100} + order.num_halves + (order.forced_only ? 0x80 : 0));
    for (const Slot& slot : order.slots)
      add(uint64_t{slot.half} << 16 | uint64_t{static_cast<uint8_t>(slot.op)} << 8 | slot.lag);
    add(uint64_t{0x200});
  }
  return static_cast<uint32_t>(mix64(sum) >> 32);
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

}  // namespace

const Order& serial_order() {
  return OrderTable::builtin().at(0);
}

const OrderTable& OrderTable::builtin() {
  static const OrderTable table = [] {
    OrderTable made;
    made.orders_ = read_embedded();
    made.user_begin_ = made.size();
    made.fingerprint_ = fingerprint_of(made.orders_);
    return made;
  }();
  return table;
}

OrderTable OrderTable::with(std::vector<Order> more) {
  OrderTable table = builtin();
  std::ranges::move(more, std::back_inserter(table.orders_));
  HOCKET_CHECK(table.orders_.size() <= kMaxTableOrders);
  table.fingerprint_ = fingerprint_of(table.orders_);
  return table;
}

Result<OrderTable> OrderTable::with_file(const std::string& path) {
  HOCKET_TRY(std::vector<OrderDocument> documents, read_orders(path));
  std::vector<Order> orders;
  for (OrderDocument& document : documents) {
    if (builtin().find(document.order.name) >= 0 ||
        std::ranges::find(orders, document.order.name, &Order::name) != orders.end())
      return fail(error(ErrorCode::bad_value, "{}:{}: there is an order {} already", path,
                        document.line, document.order.name)
                      .with_fix("another name"));
    orders.push_back(std::move(document.order));
  }
  return with(std::move(orders));
}

int OrderTable::find(std::string_view name) const {
  const auto found = std::ranges::find(orders_, name, &Order::name);
  return found == orders_.end() ? -1 : static_cast<int>(found - orders_.begin());
}

std::string OrderTable::names() const {
  std::string all;
  for (const Order& order : orders_)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", order.name);
  return all;
}

}  // namespace hocket
