// Fuzzes a user's file of orders. Any bytes give orders or an error message. An accepted order is
// legal for every kind of layer, and writing and parsing it again gives the same order.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "compute/overlap/order_table.h"
#include "compute/overlap/order_yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto documents =
      hocket::parse_orders(std::string_view(reinterpret_cast<const char*>(data), size), "f");
  if (!documents) {
    HOCKET_CHECK(!documents.error().message.empty());
    HOCKET_CHECK(!documents.error().fix.empty());
    return 0;
  }
  for (const hocket::OrderDocument& document : *documents) {
    const hocket::Order& order = document.order;
    for (const hocket::OpGraph* graph :
         {&hocket::shared_moe_graph(), &hocket::moe_graph(), &hocket::dense_graph()})
      HOCKET_CHECK(hocket::validate(order, *graph).has_value());
    const auto again = hocket::parse_order(hocket::to_yaml(order), "f");
    HOCKET_CHECK(again.has_value());
    HOCKET_CHECK(*again == order);
  }
  return 0;
}
