#include "core/ordered_tree.h"

#include <gtest/gtest.h>

#include <string>

#include "core/bounded_json.h"

namespace hocket {
namespace {

using Tree = OrderedTreeBuilder::Tree;

TEST(OrderedTree, IsThatOfTheLibrary) {
  for (const char* text :
       {"null", "[]", "{}", "1", "-2.5", R"("x")", R"({"b":1,"a":{"d":[1,{"c":null}],"b":true}})",
        R"([[],[{}],"",18446744073709551615])", R"({"a":1,"b":2,"a":3})",
        R"({"a":{"x":1,"x":2},"a":[{"y":1,"z":0,"y":2}],"c":{}})"})
    EXPECT_EQ(parse_ordered(text).dump(), Tree::parse(text).dump()) << text;
  for (const char* text : {"", "{", "[1,", R"({"a"})", "nul", "1 2", "\"\xff\""})
    EXPECT_TRUE(parse_ordered(text).is_discarded()) << text;
}

// A search for each key would make these take minutes.
TEST(OrderedTree, ManyFieldsAreReadAtOnce) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"k" + std::to_string(i % 299'999) + "\":1,";
  text.back() = '}';
  const auto tree = parse_bounded_json(text);
  ASSERT_EQ(tree.size(), 299'999u);
  EXPECT_EQ(tree.begin().key(), "k0");
}

TEST(OrderedTree, AppendedFieldsAreFound) {
  Tree object = {{"a", 1}};
  append_field(object, "b", Tree::array({2}));
  EXPECT_EQ(object.dump(), R"({"a":1,"b":[2]})");
  EXPECT_EQ(object["b"][0], 2);
}

}  // namespace
}  // namespace hocket
