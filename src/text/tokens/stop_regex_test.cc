#include "text/tokens/stop_regex.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using Ended = std::pair<std::string, std::string>;

// Returns the answer that a text becomes, and the pattern that ended it.
Ended in_pieces(const std::shared_ptr<const StopRegex>& regex, std::string_view text, size_t step) {
  StopRegexSearch search(regex);
  std::string all;
  for (size_t i = 0; i < text.size(); i += step) {
    const std::string_view piece = text.substr(i, step);
    if (const auto found = search.push(piece).value()) {
      all += piece.substr(0, found->kept);
      return {all, std::string(found->pattern)};
    }
    all += piece;
  }
  return {all, std::string(search.finish().value().value_or(""))};
}

Ended answer(std::vector<std::string> patterns, std::string_view text) {
  const auto regex = StopRegex::compile(std::move(patterns));
  EXPECT_TRUE(regex.has_value());
  const Ended whole = in_pieces(*regex, text, text.size());
  for (size_t step = 1; step < text.size(); ++step)
    EXPECT_EQ(in_pieces(*regex, text, step), whole) << "in pieces of " << step;
  return whole;
}

TEST(StopRegex, EndsTheAnswerWithItsMatch) {
  EXPECT_EQ(answer({"[0-9]{3}", "zz"}, "ab 12 345 678"), Ended("ab 12 345", "[0-9]{3}"));
  EXPECT_EQ(answer({"x", "y"}, "no such letter"), Ended("no such letter", ""));
  EXPECT_EQ(answer({"end$"}, "the end at the end"), Ended("the end at the end", "end$"));
}

TEST(StopRegex, ASlowSearchIsAnError) {
  // Each byte leads to a state not met before, which has some thousand parts.
  const auto regex = StopRegex::compile({"a[ab]{200}(?:[ab]?){1500}c"});
  ASSERT_TRUE(regex) << regex.error().message;
  StopRegexSearch search(*regex);
  uint32_t x = 1;
  for (int i = 0; i < 100'000; ++i) {
    x = x * 1664525 + 1013904223;
    const auto found = search.push((x >> 16) % 2 == 0 ? "a" : "b");
    if (found) continue;
    EXPECT_EQ(found.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(found.error().param, "stop_regex");
    EXPECT_NE(found.error().message.find("s on this answer"), std::string::npos);
    return;
  }
  FAIL() << "it took all the time that it wanted";
}

TEST(StopRegex, SaysWhatIsWrong) {
  const auto open = StopRegex::compile({"a", "("});
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, ErrorCode::invalid_request);
  EXPECT_NE(open.error().message.find("unclosed group"), std::string::npos);
  EXPECT_FALSE(StopRegex::compile({"a*"}));
  const auto boundary = StopRegex::compile({"\\bx"});
  ASSERT_FALSE(boundary);
  EXPECT_EQ(boundary.error().fix, "write (?-u:\\b) in place of \\b");
  EXPECT_TRUE(StopRegex::compile({"(?-u:\\b)x"}));
}

}  // namespace
}  // namespace hocket
