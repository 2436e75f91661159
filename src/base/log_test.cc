#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

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

std::string as_json(const std::function<void()>& body) {
  log::set_format(log::Format::json);
  const std::string text = captured(body);
  log::set_format(log::Format::text);
  return text;
}

TEST(Log, AJsonLineIsOneObject) {
  EXPECT_THAT(as_json([] { log::warning("a \"line\"\nof {}\\", "two\x01"); }),
              MatchesRegex("\\{\"time\":\"....-..-..T..:..:..\\....Z\",\"level\":\"warning\","
                           "\"message\":\"a .\"line.\".nof two.u0001..\"\\}\n"));
}

TEST(Log, AJsonLineSaysWhoseItIs) {
  EXPECT_THAT(as_json([] {
                log::set_origin("rank 1");
                log::info("x");
                log::set_origin("");
              }),
              HasSubstr("\"level\":\"info\",\"origin\":\"rank 1\",\"message\":\"x\"}"));
}

const log::Field kFields[] = {{"rid", std::string_view("a b\nc")},
                              {"tokens", int64_t{3}},
                              {"ms", 1.5},
                              {"stream", true},
                              {"path", std::string_view("/v1/x")}};

TEST(Log, ARecordInTextIsOneLineWhateverItsValues) {
  EXPECT_THAT(captured([] { log::record(log::Level::info, "ended", kFields); }),
              HasSubstr("I ended rid=\"a b\\nc\" tokens=3 ms=1.5 stream=true path=/v1/x\n"));
}

TEST(Log, ARecordInJsonHasItsFieldsAsMembers) {
  EXPECT_THAT(as_json([] { log::record(log::Level::info, "ended", kFields); }),
              HasSubstr("\"event\":\"ended\",\"rid\":\"a b\\nc\",\"tokens\":3,\"ms\":1.5,"
                        "\"stream\":true,\"path\":\"/v1/x\"}\n"));
}

TEST(Log, WhatIsNoUtf8IsReplaced) {
  EXPECT_THAT(as_json([] { log::info("{}", "\xC3\x28 \xE4\xBD\xA0 \xED\xA0\x80 \xF0\x9F"); }),
              HasSubstr("\"\\ufffd( 你 \\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\"}"));
}

}  // namespace
}  // namespace hocket
