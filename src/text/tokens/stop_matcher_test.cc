#include "text/tokens/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace hocket {
namespace {

struct Answer {
  std::string text;
  std::optional<std::string> match;
  bool operator==(const Answer&) const = default;
};

// Applies the rule of the header to every beginning of the text.
Answer by_definition(const std::string& text, std::vector<std::string> stops, StopText keep) {
  std::ranges::sort(stops, std::ranges::greater{}, &std::string::size);
  for (size_t end = 1; end <= text.size(); ++end) {
    for (const std::string& stop : stops) {
      if (!text.substr(0, end).ends_with(stop)) continue;
      return {text.substr(0, keep == StopText::keep ? end : end - stop.size()), stop};
    }
  }
  return {text, std::nullopt};
}

// Returns the length of the longest end of `sent` that is a proper beginning of a stop string.
size_t may_still_match(const std::string& sent, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (sent.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

std::string random_text(std::mt19937& random, size_t len) {
  const std::string letters[] = {"a", "b", "é", "\n"};
  std::string text;
  while (len-- > 0) text += letters[random() % 4];
  return text;
}

TEST(StopMatcher, AnyCutOfAnyTextGivesTheSameAnswer) {
  std::mt19937 random(11);
  int matches = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& s : stops) s = random_text(random, 1 + random() % 4);
    const std::string text = random_text(random, random() % 20);
    const StopText keep = random() % 2 ? StopText::keep : StopText::trim;
    StopMatcher matcher(stops, keep);
    Answer got;
    size_t at = 0;
    while (at < text.size() && !got.match) {
      const size_t n = std::min(text.size() - at, 1 + random() % 5);
      const auto piece = matcher.push(std::string_view(text).substr(at, n));
      at += n;
      got.text += piece.text;
      got.match = piece.match;
      const std::string seen = text.substr(0, at);
      if (got.match) break;
      ASSERT_EQ(seen.size() - got.text.size(), may_still_match(seen, stops));
    }
    if (got.match) {
      ++matches;
      EXPECT_EQ(matcher.push("more").text, "");
      EXPECT_EQ(matcher.flush(), "");
    } else {
      got.text += matcher.flush();
    }
    ASSERT_EQ(got, by_definition(text, stops, keep)) << text;
  }
  EXPECT_GT(matches, 5000);
  EXPECT_LT(matches, 19000);
}

TEST(StopMatcher, WithoutStopStringsTextPasses) {
  StopMatcher matcher({}, StopText::trim);
  EXPECT_EQ(matcher.push("all of it").text, "all of it");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, HoldsBackWholeCharacters) {
  StopMatcher matcher({"é!"}, StopText::trim);
  EXPECT_EQ(matcher.push("caf").text, "caf");
  EXPECT_EQ(matcher.push("é").text, "");
  EXPECT_EQ(matcher.push("?").text, "é?");
}

TEST(StopMatcherDeath, AnEmptyStopStringIsABug) {
  EXPECT_DEATH(StopMatcher({""}, StopText::trim), "CHECK failed");
}

}  // namespace
}  // namespace hocket
