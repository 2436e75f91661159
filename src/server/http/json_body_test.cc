// Bodies that are expensive to parse (deep, wide, long), and their errors.
#include "server/http/json_body.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/allocated_bytes_testing.h"

namespace hocket {
namespace {

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(JsonBody, ATreeTakesNoMoreThanItsTextForetells) {
  constexpr int kTimes = 20'000;
  std::string object = "{";
  for (int i = 0; i < kTimes; ++i) object += fmt::format(R"("{}":{},)", i, i);
  object.back() = '}';
  for (const std::string& text :
       {"[" + repeated("1,", kTimes) + "1]", "[" + repeated("[],", kTimes) + "[]]",
        "[" + repeated("{},", kTimes) + "{}]", "[" + repeated("\"\",", kTimes) + "\"\"]",
        "[" + repeated(R"({"a":1},)", kTimes) + "1]", "[" + repeated("[[1]],", kTimes) + "1]",
        "[" + repeated(R"("a longer text than fits",)", kTimes) + "1]",
        "[" + repeated(R"({"a longer key than fits":{"b":""}},)", kTimes) + "1]", object}) {
    const int64_t before = allocated_bytes();
    const auto tree = parse_json(text);
    const int64_t taken = allocated_bytes() - before;
    ASSERT_TRUE(tree);
    EXPECT_LE(taken, json_shape(text).tree_bytes) << text.substr(0, 40);
  }
}

size_t num_text_bytes(const Error& error) {
  return error.message.size() + error.fix.size() + error.param.size();
}

// An error repeats only a few of the client's words.
TEST(JsonBody, WhatIsSaidOfALongBodyIsShort) {
  const std::string long_word(1 << 20, 'x');
  for (const std::string& body :
       {"[" + long_word + "]", "{\"" + long_word + "\":1,\"" + long_word + "\":2}",
        "{\"" + long_word, "{\"a\":1" + long_word + "}"}) {
    const auto parsed = parse_json(body);
    ASSERT_FALSE(parsed);
    EXPECT_LE(num_text_bytes(parsed.error()), 256u);
  }
  const Json unknown = {{long_word, 1}};
  Fields fields(unknown);
  EXPECT_LE(num_text_bytes(fields.finish().error()), 256u);
}

}  // namespace
}  // namespace hocket
