#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>

namespace hocket {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Returns the log lines that `body` writes, as stderr shows them.
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

// Makes stderr a pipe while it lives. Broken pipes are ignored from then on, as main() does.
class StderrPipe {
 public:
  StderrPipe() : before_(dup(STDERR_FILENO)) {
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~StderrPipe() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    if (ends_[0] >= 0) close(ends_[0]);
  }
  void stop_reading() { close(std::exchange(ends_[0], -1)); }
  // Reads until the text read so far is all that was awaited, and returns it.
  template <class IsAll>
  std::string read_until(IsAll&& is_all) const {
    std::string text;
    char piece[65536];  // all that a pipe holds
    for (ssize_t n = 1; n > 0 && !is_all(text);) {
      n = read(ends_[0], piece, sizeof piece);
      text.append(piece, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{};
  const int before_;
};

// Returns the sum of the lost lines that a log tells of; it may tell of them in several lines.
int64_t lines_told_lost(std::string_view text) {
  constexpr std::string_view kBegin = "log: ", kEnd = " lines are lost";
  int64_t sum = 0;
  for (size_t at = 0; (at = text.find(kEnd, at)) != text.npos; at += kEnd.size())
    sum += std::stoll(std::string(text.substr(text.rfind(kBegin, at) + kBegin.size())));
  return sum;
}

int64_t count(std::string_view text, std::string_view word) {
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; at += word.size()) ++found;
  return found;
}

TEST(LogWriter, WritesAllLinesInTheirOrder) {
  std::string expected;
  const std::string text = captured([&] {
    const log::Writer writer;
    for (int i = 0; i < 1000; ++i) {
      log::info("line {}", i);
      expected += fmt::format("I line {}\n", i);
    }
  });
  std::string got;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    got += text.substr(text.find("] ", at) + 2, text.find('\n', at) - text.find("] ", at) - 1);
  EXPECT_EQ(got, expected);
}

// Writes more than a pipe and the queue hold while no thread reads; the writing thread continues.
TEST(LogWriter, APausedReaderStopsNobodyAndLearnsHowMuchHeMissed) {
  constexpr int64_t kLines = 40'000;
  const int64_t before = log::num_lost();
  const StderrPipe pipe;
  const log::Writer writer;
  for (int64_t i = 0; i < kLines; ++i) log::info("Decode batch, {:40}", i);
  const int64_t lost = log::num_lost() - before;
  EXPECT_GT(lost, 0);
  const std::string text =
      pipe.read_until([&](std::string_view read) { return lines_told_lost(read) >= lost; });
  EXPECT_EQ(lines_told_lost(text), lost);
  EXPECT_EQ(count(text, "Decode batch"), kLines - lost);
}

TEST(LogWriter, ItsEndWaitsForAPausedReaderAsLongAsItWasToldTo) {
  const StderrPipe pipe;
  {
    const log::Writer writer(std::chrono::milliseconds(20));
    for (int i = 0; i < 10'000; ++i) log::info("Decode batch, {:40}", i);
    EXPECT_FALSE(log::flush(std::chrono::milliseconds(1)));
    log::write_now("no room\n");
  }
  const int64_t lost = log::num_lost();
  log::info("nobody waits for this one either");
  EXPECT_EQ(log::num_lost(), lost + 1);
}

TEST(LogWriter, AReaderWhoLeftEndsNothing) {
  const int64_t lost = log::num_lost();
  StderrPipe pipe;
  pipe.stop_reading();
  {
    const log::Writer writer;
    for (int i = 0; i < 100; ++i) log::info("line {}", i);
  }
  log::info("one more");
  log::write_now("and one that is not counted\n");
  EXPECT_EQ(log::num_lost() - lost, 101);
}

TEST(LogWriter, AFullDeviceEndsNothing) {
  const int64_t lost = log::num_lost();
  const int before = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  dup2(full, STDERR_FILENO);
  log::info("one");
  dup2(before, STDERR_FILENO);
  EXPECT_EQ(log::num_lost() - lost, 1);
  close(full);
  close(before);
}

}  // namespace
}  // namespace hocket
