#include "base/json_text.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string escaped(std::string_view text, BadUtf8 bad) {
  std::string out;
  append_json_escaped(out, text, bad);
  return out;
}

TEST(JsonText, EscapesControlCharactersInBothTreatments) {
  for (const BadUtf8 bad : {BadUtf8::keep, BadUtf8::replace})
    EXPECT_EQ(escaped("a\"\\\n\r\t\x01\x7f\u00e9", bad), "a\\\"\\\\\\n\\r\\t\\u0001\\u007f\u00e9");
}

TEST(JsonText, BytesThatAreNotUtf8StayOrAreReplaced) {
  EXPECT_EQ(escaped("a\xc3", BadUtf8::keep) + escaped("\xa9", BadUtf8::keep), "a\u00e9");
  EXPECT_EQ(escaped("a\xc3(", BadUtf8::replace), "a\\ufffd(");
  std::string out;
  append_json_string(out, "\xff\t");
  EXPECT_EQ(out, R"("\ufffd\t")");
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
