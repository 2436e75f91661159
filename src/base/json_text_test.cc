#include "base/json_text.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(JsonShape, DepthIsThatOfListsAndObjects) {
  EXPECT_EQ(json_shape("").depth, 0);
  EXPECT_EQ(json_shape("7").depth, 0);
  EXPECT_EQ(json_shape("[]").depth, 1);
  EXPECT_EQ(json_shape(R"({"a":[{}],"b":[]})").depth, 3);
  EXPECT_EQ(json_shape(R"(["[[[[", "\"[[", "\\", []])").depth, 2) << "strings hold none";
  EXPECT_EQ(json_shape("]]]][").depth, 1) << "no JSON";
  EXPECT_EQ(json_shape("\"[[[[").depth, 0) << "a string without an end";
  EXPECT_EQ(json_shape("\"[\\").depth, 0) << "an escape without an end";
}

TEST(JsonShape, TooDeepIsFoundWhateverComesAfter) {
  EXPECT_FALSE(json_shape(repeated("[", kMaxJsonDepth)).too_deep());
  EXPECT_TRUE(json_shape(repeated("[", kMaxJsonDepth + 1)).too_deep());
  EXPECT_TRUE(json_shape(repeated(R"({"a":)", 1'000'000)).too_deep());
}

TEST(JsonShape, TheLongestWord) {
  EXPECT_EQ(json_shape(R"({"a long key": [true, -12.5e3]})").word_bytes, 7);
  EXPECT_FALSE(json_shape("[" + std::string(kMaxJsonWord, '1') + ",2]").has_endless_word());
  EXPECT_TRUE(json_shape("[" + std::string(kMaxJsonWord + 1, '1')).has_endless_word());
  EXPECT_FALSE(json_shape('"' + std::string(5000, '1') + '"').has_endless_word());
}

}  // namespace
}  // namespace hocket
