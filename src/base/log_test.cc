#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Log lines written by `body`, as stderr shows them.
template <class Body>
std::string captured(Body&& body) {
  testing::internal::CaptureStderr();
  body();
  std::string text = testing::internal::GetCapturedStderr();
  log::set_level(log::Level::info);
  return text;
}

TEST(Log, ALineHasTimeLevelAndText) {
  const std::string text = captured([] { log::info("kv.planned pages={}", 128); });
  EXPECT_THAT(text, MatchesRegex("\\[....-..-.. ..:..:..\\....\\] I kv.planned pages=128\n"));
}

TEST(Log, LevelsBelowTheSetOneAreSilent) {
  const std::string text = captured([] {
    log::set_level(log::Level::warning);
    EXPECT_FALSE(log::enabled(log::Level::info));
    EXPECT_TRUE(log::enabled(log::Level::error));
    log::debug("one");
    log::info("two");
    log::warning("three");
    log::error("four");
  });
  EXPECT_THAT(text, testing::Not(HasSubstr("one")));
  EXPECT_THAT(text, testing::Not(HasSubstr("two")));
  EXPECT_THAT(text, HasSubstr("W three"));
  EXPECT_THAT(text, HasSubstr("E four"));
}

TEST(Log, LinesOfSeveralProcessesSayWhoseTheyAre) {
  const std::string text = captured([] {
    log::set_origin("rank 1 %v");
    log::info("two");
    log::set_origin("");
    log::info("three");
  });
  EXPECT_THAT(text, HasSubstr("] I rank 1 %v | two\n"));
  EXPECT_THAT(text, HasSubstr("] I three\n"));
}

TEST(Log, OffSilencesErrors) {
  EXPECT_EQ(captured([] {
              log::set_level(log::Level::off);
              log::error("five");
            }),
            "");
}

TEST(Log, BracesInTheTextAreText) {
  EXPECT_THAT(captured([] { log::info("body={}", "{}{0}%s"); }), HasSubstr("body={}{0}%s\n"));
}

}  // namespace
}  // namespace hocket
