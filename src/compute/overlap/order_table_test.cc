#include "compute/overlap/order_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "compute/overlap/order_yaml.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

using testing::table;

TEST(OrderTable, AllAreLegalForEveryGraph) {
  for (int i = 0; i < table().size(); ++i)
    for (const OpGraph* graph : {&moe_graph(), &shared_moe_graph(), &dense_graph()}) {
      const Result<void> result = validate(table().at(i), *graph);
      ASSERT_TRUE(result.has_value()) << result.error().message;
    }
}

TEST(OrderTable, SerialIsFirstThenTheOthersByName) {
  EXPECT_EQ(table().names(),
            "serial, four-phase, lightllm-decode, lightllm-decode-late-shared, lightllm-prefill, "
            "lightllm-prefill-early, sglang-decode, sglang-prefill, single-batch-combine, "
            "single-batch-dispatch");
  EXPECT_EQ(&table().at(0), &serial_order());
  EXPECT_EQ(table().size(), 10);
  EXPECT_EQ(table().user_begin(), table().size());
  for (int i = 0; i < table().size(); ++i) EXPECT_EQ(table().find(table().at(i).name), i);
  EXPECT_EQ(table().find("four-phases"), -1);
}

// Returns what is computed during each transfer, from the order alone: "D(a): A(b) | ...".
std::string what_hides_what(const Order& order) {
  static const std::map<Op, std::string_view> kWorks = {{Op::attn_in, "A0"},
                                                        {Op::attn_core, "A1"},
                                                        {Op::gate, "G"},
                                                        {Op::shared, "S"},
                                                        {Op::experts, "M"}};
  std::string all;
  const auto add = [&](int half, Op start, Op wait, char letter) {
    const auto begin = std::ranges::find_if(
        order.slots, [&](const Slot& s) { return s.half == half && s.op == start; });
    all +=
        fmt::format("{}{}({}):", all.empty() ? "" : " | ", letter, static_cast<char>('a' + half));
    for (auto at = begin - order.slots.begin() + 1;; ++at) {
      const Slot& slot = order.slots[at % order.slots.size()];
      if (slot.half == half && slot.op == wait) break;
      if (const auto work = kWorks.find(slot.op); work != kWorks.end())
        all += fmt::format(" {}({})", work->second, static_cast<char>('a' + slot.half));
    }
  };
  for (int half = 0; half < order.num_halves; ++half)
    add(half, Op::dispatch_start, Op::dispatch_wait, 'D');
  for (int half = 0; half < order.num_halves; ++half)
    add(half, Op::combine_start, Op::combine_wait, 'K');
  return all;
}

TEST(OrderTable, NamedOrdersHideWhatTheirAuthorsSay) {
  const auto hides = [](std::string_view name) {
    return what_hides_what(testing::order_named(name));
  };
  EXPECT_EQ(hides("serial"), "D(a): | K(a):");
  EXPECT_EQ(hides("single-batch-dispatch"), "D(a): S(a) | K(a):");
  EXPECT_EQ(hides("single-batch-combine"), "D(a): | K(a): S(a)");
  EXPECT_EQ(hides("four-phase"),
            "D(a): A0(b) A1(b) G(b) | D(b): M(a) | K(a): S(a) M(b) | K(b): S(b) A0(a) A1(a) G(a)");
  EXPECT_EQ(hides("sglang-prefill"),
            "D(a): S(b) A0(b) A1(b) G(b) | D(b): M(a) | K(a): M(b) S(a) | "
            "K(b): S(a) A0(a) A1(a) G(a) S(b)");
  EXPECT_EQ(hides("sglang-decode"),
            "D(a): S(a) A0(b) | D(b): S(b) A0(a) | K(a): A1(b) G(b) | K(b): A1(a) G(a)");
  EXPECT_EQ(hides("lightllm-prefill"),
            "D(a): A0(b) A1(b) | D(b): S(a) S(b) M(a) | K(a): M(b) | K(b): A0(a) A1(a)");
  EXPECT_EQ(hides("lightllm-prefill-early"),
            "D(a): A0(b) A1(b) | D(b): S(a) S(b) M(a) | K(a): M(b) | K(b): A0(a) A1(a) G(a)");
  EXPECT_EQ(hides("lightllm-decode"),
            "D(a): A0(b) A1(b) G(b) | D(b): M(a) | K(a): M(b) | K(b): A0(a) A1(a) G(a)");
  EXPECT_EQ(hides("lightllm-decode-late-shared"),
            "D(a): S(a) A0(b) A1(b) G(b) | D(b): S(b) M(a) | K(a): M(b) | "
            "K(b): A0(a) A1(a) G(a)");
}

// Returns how many transfers the order has under way at the same time, at most.
int max_transfers(const Order& order) {
  int now = 0, most = 0;
  for (int tick = 0; tick < 6; ++tick)
    for (const Slot& slot : order.slots) {
      if (tick < slot.lag) continue;  // it plays no layer yet
      if (slot.op == Op::dispatch_start || slot.op == Op::combine_start)
        most = std::max(most, ++now);
      if (slot.op == Op::dispatch_wait || slot.op == Op::combine_wait) --now;
    }
  return most;
}

TEST(OrderTable, OnlyTheseOrdersHaveSeveralTransfersUnderWay) {
  const OrderTable& orders = OrderTable::builtin();
  for (int index = 0; index < orders.size(); ++index) {
    const Order& order = orders.at(index);
    const bool has_two = order.name == "sglang-prefill" || order.name == "lightllm-prefill-early";
    EXPECT_EQ(max_transfers(order), has_two ? 2 : 1) << order.name;
  }
}

// A file that is removed at the end of the test.
class OrderFile {
 public:
  explicit OrderFile(std::string_view text)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("{}-{}.yaml",
                          ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                          static_cast<const void*>(this))) {
    std::ofstream(path_) << text;
  }
  ~OrderFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string renamed(std::string_view order, std::string_view name) {
  Order copy = testing::order_named(order);
  copy.name = name;
  return to_yaml(copy);
}

TEST(OrderTable, TakesTheOrdersOfAFileBehindItsOwn) {
  const OrderFile file(renamed("four-phase", "mine") + "---\n" + renamed("serial", "other"));
  const auto made = OrderTable::with_file(file.path());
  ASSERT_TRUE(made.has_value()) << describe(made.error());
  EXPECT_EQ(made->size(), table().size() + 2);
  EXPECT_EQ(made->user_begin(), table().size());
  EXPECT_EQ(made->at(made->find("mine")).slots, testing::order_named("four-phase").slots);
  EXPECT_EQ(made->find("other"), made->size() - 1);
  EXPECT_TRUE(made->names().ends_with("single-batch-dispatch, mine, other"));
}

TEST(OrderTable, TablesThatDifferHaveOtherFingerprints) {
  const auto print_of = [](const std::string& text) {
    const OrderFile file(text);
    const auto made = OrderTable::with_file(file.path());
    return made ? made->fingerprint() : 0;
  };
  const std::string mine = renamed("four-phase", "mine");
  Order later = testing::order_named("four-phase");
  later.name = "mine";
  for (Slot& slot : later.slots) slot.lag += slot.half;
  std::set<uint32_t> prints = {0, table().fingerprint()};
  EXPECT_TRUE(prints.insert(print_of(mine)).second);
  EXPECT_EQ(print_of(mine), print_of("# said otherwise\n" + mine));
  for (const std::string& other :
       {renamed("four-phase", "mine2"), renamed("lightllm-decode", "mine"),
        renamed("serial", "mine"), to_yaml(later), mine + "---\n" + renamed("serial", "other")})
    EXPECT_TRUE(prints.insert(print_of(other)).second) << other;
}

TEST(OrderTable, RefusesNamesThatAreTakenAndFilesThatAreNot) {
  for (const auto& [text, line] : std::vector<std::pair<std::string, int>>{
           {renamed("serial", "four-phase"), 1},
           {renamed("serial", "a") + "---\n" + renamed("serial", "a"), 7},
           {"\n\n" + renamed("serial", "serial"), 3}}) {
    const OrderFile file(text);
    const auto made = OrderTable::with_file(file.path());
    ASSERT_FALSE(made.has_value());
    EXPECT_TRUE(made.error().message.starts_with(
        fmt::format("{}:{}: there is an order", file.path(), line)))
        << made.error().message;
  }
  const auto missing = OrderTable::with_file("/nowhere/orders.yaml");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::io);
  const auto folder = OrderTable::with_file(std::filesystem::temp_directory_path());
  EXPECT_FALSE(folder.has_value());
}

TEST(OrderYaml, ComesBackAsItWas) {
  std::mt19937 random(2);
  std::vector<Order> orders = {testing::random_order(random), testing::tight_order(random)};
  for (int i = 0; i < table().size(); ++i) orders.push_back(table().at(i));
  for (const Order& order : orders) {
    const std::string text = to_yaml(order);
    const auto read = parse_order(text, "x");
    ASSERT_TRUE(read.has_value()) << describe(read.error()) << text;
    ASSERT_EQ(*read, order) << text;
  }
}

TEST(OrderYaml, NothingBehindTheLastLineIsNoOrder) {
  const auto read = parse_orders(to_yaml(serial_order()) + "---\n", "x");
  ASSERT_TRUE(read.has_value()) << describe(read.error());
  EXPECT_EQ(read->size(), 1u);
}

struct Refusal {
  std::string text, message, fix;
};

TEST(OrderYaml, SaysLineAndRemedyOfEveryMistake) {
  const std::string head = "name: x\nhalves: 1\nslots:\n";
  const auto with_slot = [&](std::string_view slot) {
    return fmt::format("{}  - a.attn_in\n  - {}\n", head, slot);
  };
  std::string twice = "name: x\nhalves: 1\nslots:\n";
  for (const Slot& slot : serial_order().slots) twice += "  - " + slot_name(slot) + "\n";
  std::string no_mlp = to_yaml(serial_order());
  no_mlp.erase(no_mlp.find(" a.mlp,"), 7);
  const Refusal refusals[] = {
      {no_mlp, "f:4: order serial: a.mlp occurs 0 times, must occur once",
       "put a.mlp behind a.attn_core"},
      {"", "f has no order in it", "name, halves and slots, as docs/contracts/overlap.md shows"},
      {"[1, 2]", "f:1: an order is a map", "name, halves and slots, each with a colon"},
      {"name: x\nslots: [", "f:2: ", "YAML as docs/contracts/overlap.md shows"},
      {"name: x\nhalves: 1\nslot: [a.gate]", "f:3: 'slot' is no part of an order", "slots"},
      {"name: x\nhalves: 1\ncolour: red", "f:3: 'colour' is no part of an order",
       "one of name, halves, slots, forced_only"},
      {"name: x\nhalves: 1\nforced_only: perhaps\nslots: []",
       "f:3: forced_only is not true or false", "forced_only: true"},
      {"name: x\nname: y\nhalves: 1", "f:2: the key name occurs twice", "remove one of them"},
      {"name: x\nhalves: 2", "f:1: slots is missing", "add slots:"},
      {"name: X y\nhalves: 1\nslots: []", "f:1: that is no name for an order",
       "1 to 48 of a-z 0-9 - _ ."},
      {"halves: 1\nname: auto\nslots: []", "f:2: no order may be called auto", "another name"},
      {"name: x\nhalves: 3\nslots: []", "f:2: halves is not a number from 1 to 2", "halves: 2"},
      {"name: x\nhalves: two\nslots: []", "f:2: halves is not a number from 1 to 2", "halves: 2"},
      {"name: x\nhalves: 1\nslots: a.gate", "f:3: slots is not a list",
       "slots: [a.attn_in, a.attn_core, ...]"},
      {with_slot("gate"), "f:5: 'gate' is no slot",
       "half, a '-' for each layer behind, dot, operation: b-.combine_wait"},
      {with_slot("[a.gate]"), "f:5: '' is no slot",
       "half, a '-' for each layer behind, dot, operation: b-.combine_wait"},
      {with_slot("-a.gate"), "f:5: '-a.gate' is no slot",
       "half, a '-' for each layer behind, dot, operation: b-.combine_wait"},
      {with_slot("c.gate"), "f:5: there is no half c", "a to b"},
      {with_slot("a---.gate"), "f:5: a---.gate is 3 layers behind, 2 at most", "a--.gate"},
      {with_slot("a.atn_core"), "f:5: there is no operation 'atn_core'", "attn_core"},
      {with_slot("a.think"), "f:5: there is no operation 'think'",
       "one of attn_in, attn_core, mlp, gate, dispatch_start, shared, dispatch_wait, experts, "
       "combine_start, combine_wait"},
      {with_slot("b.gate"), "f:5: order x: b.gate is of half b, but there is 1",
       "halves: 2, or take it out"},
      {with_slot("a.attn_core"), "f:5: order x: a.gate occurs 0 times, must occur once",
       "put a.gate behind a.attn_core"},
      {twice + "  - a.gate\n", "f:14: order x: a.gate occurs 2 times, must occur once",
       "take a.gate out"},
      {to_yaml(serial_order()) + "---\n" + to_yaml(serial_order()), "f:7: a second order",
       "one order"},
      {"name: x\n---\n,\n", "f:3: more than 64 documents",
       "fewer orders, and nothing between them but ---"},
      {std::string(kMaxOrderBytes + 1, '#'), "f has 262145 bytes, at most 262144 are read",
       "a file of orders alone"},
  };
  for (const Refusal& refusal : refusals) {
    const auto read = parse_order(refusal.text, "f");
    ASSERT_FALSE(read.has_value()) << refusal.text;
    EXPECT_EQ(read.error().code, ErrorCode::bad_value);
    EXPECT_TRUE(read.error().message.starts_with(refusal.message))
        << read.error().message << "\nnot " << refusal.message;
    EXPECT_EQ(read.error().fix, refusal.fix) << refusal.text;
  }
}

}  // namespace
}  // namespace hocket
