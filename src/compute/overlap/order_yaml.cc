#include "compute/overlap/order_yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "base/nearest_name.h"
#include "compute/forward/half.h"

namespace hocket {
namespace {

constexpr size_t kMaxNameLength = 48;
constexpr int kMaxFileOrders = 64;  // in one file
constexpr std::array<std::string_view, 4> kKeys = {"name", "halves", "slots", "forced_only"};
constexpr size_t kNumNeededKeys = 3;  // the first ones
// These words have another meaning where orders are chosen.
constexpr std::array<std::string_view, 4> kTaken = {"auto", "none", "single-batch", "two-batch"};

class OrderReader {
 public:
  explicit OrderReader(std::string_view where) : where_(where) {}

  Result<OrderDocument> read(const YAML::Node& root) {
    if (!root.IsMap())
      return fail(
          at(root, "an order is a map").with_fix("name, halves and slots, each with a colon"));
    HOCKET_TRY_VOID(check_keys(root));
    OrderDocument made;
    HOCKET_TRY(made.order.name, read_name(root["name"]));
    made.line = line_of(root["name"]);
    HOCKET_TRY(made.order.num_halves, read_halves(root["halves"]));
    if (const YAML::Node forced = root["forced_only"];
        forced && !YAML::convert<bool>::decode(forced, made.order.forced_only))
      return fail(at(forced, "forced_only is not true or false").with_fix("forced_only: true"));
    const YAML::Node slots = root["slots"];
    if (!slots.IsSequence())
      return fail(
          at(slots, "slots is not a list").with_fix("slots: [a.attn_in, a.attn_core, ...]"));
    for (const YAML::Node& slot : slots) {
      HOCKET_TRY(const Slot read, read_slot(slot));
      made.order.slots.push_back(read);
    }
    HOCKET_TRY_VOID(check_legal(made.order, slots));
    return made;
  }

 private:
  static int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

  template <class... Args>
  Error at(const YAML::Node& node, fmt::format_string<Args...> text, Args&&... args) const {
    return error(ErrorCode::bad_value, "{}:{}: {}", where_, line_of(node),
                 fmt::format(text, std::forward<Args>(args)...));
  }

  Result<void> check_keys(const YAML::Node& root) const {
    std::array<int, kKeys.size()> count{};
    for (const auto& entry : root) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto known = std::ranges::find(kKeys, key);
      if (known == kKeys.end())
        return fail(at(entry.first, "'{}' is no part of an order", key)
                        .with_fix(nearest_of(key, kKeys, "name, halves, slots, forced_only")));
      if (++count[known - kKeys.begin()] > 1)
        return fail(at(entry.first, "the key {} occurs twice", key).with_fix("remove one of them"));
    }
    for (size_t i = 0; i < kNumNeededKeys; ++i)
      if (count[i] == 0)
        return fail(at(root, "{} is missing", kKeys[i]).with_fix(fmt::format("add {}:", kKeys[i])));
    return {};
  }

  Result<std::string> read_name(const YAML::Node& node) const {
    std::string name = node.IsScalar() ? node.Scalar() : "";
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    };
    if (name.empty() || name.size() > kMaxNameLength || !std::ranges::all_of(name, fits))
      return fail(at(node, "that is no name for an order")
                      .with_fix(fmt::format("1 to {} of a-z 0-9 - _ .", kMaxNameLength)));
    if (std::ranges::find(kTaken, name) != kTaken.end())
      return fail(at(node, "no order may be called {}", name).with_fix("another name"));
    return name;
  }

  Result<int> read_halves(const YAML::Node& node) const {
    int halves = 0;
    if (!node.IsScalar() || !YAML::convert<int>::decode(node, halves) || halves < 1 ||
        halves > kMaxHalves)
      return fail(at(node, "halves is not a number from 1 to {}", kMaxHalves)
                      .with_fix(fmt::format("halves: {}", kMaxHalves)));
    return halves;
  }

  // Reads a slot such as a.experts or b-.combine_wait.
  Result<Slot> read_slot(const YAML::Node& node) const {
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    const size_t dot = text.find('.');
    const size_t dashes = dot == std::string::npos ? 0 : std::ranges::count(text, '-');
    if (dot == std::string::npos || dot != 1 + dashes || text[0] < 'a' || text[0] > 'z' ||
        text.find_first_not_of('-', 1) != dot)
      return fail(
          at(node, "'{}' is no slot", text.substr(0, kMaxNameLength))
              .with_fix("half, a '-' for each layer behind, dot, operation: b-.combine_wait"));
    if (text[0] >= 'a' + kMaxHalves)
      return fail(at(node, "there is no half {}", text[0])
                      .with_fix(fmt::format("a to {}", static_cast<char>('a' + kMaxHalves - 1))));
    if (dashes > kMaxLag)
      return fail(at(node, "{} is {} layers behind, {} at most", text, dashes, kMaxLag)
                      .with_fix(fmt::format("{}{}.{}", text[0], std::string(kMaxLag, '-'),
                                            text.substr(dot + 1))));
    const std::string_view name = std::string_view(text).substr(dot + 1);
    for (int op = 0; op < kNumOps; ++op)
      if (op_name(static_cast<Op>(op)) == name)
        return Slot{static_cast<uint8_t>(text[0] - 'a'), static_cast<Op>(op),
                    static_cast<uint8_t>(dashes)};
    std::array<std::string_view, kNumOps> ops;
    std::string all;
    for (int op = 0; op < kNumOps; ++op) {
      ops[op] = op_name(static_cast<Op>(op));
      all += fmt::format("{}{}", op == 0 ? "" : ", ", ops[op]);
    }
    return fail(at(node, "there is no operation '{}'", name.substr(0, kMaxNameLength))
                    .with_fix(nearest_of(name, ops, all)));
  }

  Result<void> check_legal(const Order& order, const YAML::Node& slots) const {
    for (const OpGraph* graph : {&shared_moe_graph(), &moe_graph(), &dense_graph()})
      if (auto fault = find_fault(order, *graph))
        return fail(at(fault->slot < 0 ? slots : slots[fault->slot], "order {}: {}", order.name,
                       fault->what)
                        .with_fix(std::move(fault->fix)));
    return {};
  }

  static std::string nearest_of(std::string_view word, std::span<const std::string_view> words,
                                std::string_view all) {
    const auto near = nearest_name(word, words);
    return near ? std::string(*near) : fmt::format("one of {}", all);
  }

  std::string_view where_;
};

// Takes from the parser's events only the lines on which documents begin.
class Beginnings final : public YAML::EventHandler {
 public:
  int line = 0;  // the last document's first line

 private:
  void OnDocumentStart(const YAML::Mark& mark) override { line = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::LoadAll takes a stray comma between documents for one document after the other, without
// end. So this function counts the documents first.
Result<void> check_documents(const std::string& yaml, std::string_view where) {
  std::istringstream stream(yaml);
  YAML::Parser parser(stream);
  Beginnings beginnings;
  for (int count = 0; parser.HandleNextDocument(beginnings); ++count)
    if (count == kMaxFileOrders)
      return fail(error(ErrorCode::bad_value, "{}:{}: more than {} documents", where,
                        beginnings.line, kMaxFileOrders)
                      .with_fix("fewer orders, and nothing between them but ---"));
  return {};
}

}  // namespace

Result<std::vector<OrderDocument>> parse_orders(std::string_view yaml, std::string_view where) {
  if (yaml.size() > kMaxOrderBytes)
    return fail(error(ErrorCode::bad_value, "{} has {} bytes, at most {} are read", where,
                      yaml.size(), kMaxOrderBytes)
                    .with_fix("a file of orders alone"));
  try {
    const std::string text(yaml);
    HOCKET_TRY_VOID(check_documents(text, where));
    std::vector<OrderDocument> orders;
    for (const YAML::Node& root : YAML::LoadAll(text)) {
      if (root.IsNull()) continue;  // after a last `---`
      HOCKET_TRY(OrderDocument order, OrderReader(where).read(root));
      orders.push_back(std::move(order));
    }
    if (orders.empty())
      return fail(error(ErrorCode::bad_value, "{} has no order in it", where)
                      .with_fix("name, halves and slots, as docs/contracts/overlap.md shows"));
    return orders;
  } catch (const YAML::Exception& e) {
    return fail(error(ErrorCode::bad_value, "{}:{}: {}", where, e.mark.line + 1, e.msg)
                    .with_fix("YAML as docs/contracts/overlap.md shows"));
  }
}

Result<std::vector<OrderDocument>> read_orders(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    // One byte more than the limit, so that a longer file is noticed.
    text.resize(kMaxOrderBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad())
    return fail(error(ErrorCode::io, "cannot read {}", path)
                    .with_fix("--overlap-plan with the path of a file of orders"));
  return parse_orders(text, path);
}

Result<Order> parse_order(std::string_view yaml, std::string_view where) {
  HOCKET_TRY(std::vector<OrderDocument> orders, parse_orders(yaml, where));
  if (orders.size() != 1)
    return fail(error(ErrorCode::bad_value, "{}:{}: a second order", where, orders[1].line)
                    .with_fix("one order"));
  return std::move(orders[0].order);
}

std::string to_yaml(const Order& order) {
  constexpr size_t kWidth = 100;
  std::string text = fmt::format("name: {}\nhalves: {}\n{}slots: [", order.name, order.num_halves,
                                 order.forced_only ? "forced_only: true\n" : "");
  size_t column = kWidth;
  for (size_t i = 0; i < order.slots.size(); ++i) {
    const std::string slot =
        slot_name(order.slots[i]) + (i + 1 == order.slots.size() ? "]\n" : ",");
    if (column + 1 + slot.size() > kWidth) {
      text += "\n ";
      column = 1;
    }
    text += " " + slot;
    column += 1 + slot.size();
  }
  return text;
}

}  // namespace hocket
