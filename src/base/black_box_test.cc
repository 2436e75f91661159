#include "base/black_box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// The signal and the file of a child process that opens a box and dies by `end`.
struct ProcessEnd {
  int signal = 0;
  std::string text;
  std::vector<std::string> files;
};

class BlackBox : public testing::Test {
 protected:
  BlackBox() : folder_(fs::temp_directory_path() / fmt::format("black-box-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~BlackBox() override { fs::remove_all(folder_); }

  ProcessEnd left_by(const std::function<void()>& end) {
    const pid_t child = fork();
    if (child == 0) {
      std::freopen("/dev/null", "w", stderr);
      const auto opened = black_box::open(
          {.folder = folder_, .about = R"({"model":"tiny"})", .request_slots = 4, .step_slots = 8});
      if (opened) end();
      _exit(opened ? 0 : 99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ProcessEnd left{.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    for (const auto& entry : fs::directory_iterator(folder_)) {
      left.files.push_back(entry.path());
      std::stringstream all;
      all << std::ifstream(entry.path()).rdbuf();
      if (all.str().contains(fmt::format("\"pid\":{}", child))) left.text = all.str();
    }
    return left;
  }

  const fs::path folder_;
};

TEST_F(BlackBox, AFailedCheckLeavesItsWordsAndTheLastEvents) {
  const ProcessEnd left = left_by([] {
    for (int i = 0; i < 20; ++i) black_box::note(black_box::Ring::steps, "\"step\":{}", i);
    black_box::note(black_box::Ring::requests, R"("request":"began","id":"{}")", "gen-1");
    HOCKET_CHECK(1 == 2);
  });
  EXPECT_EQ(left.signal, SIGABRT);
  EXPECT_THAT(left.text, HasSubstr("\"why\":\"signal 6 "));
  EXPECT_THAT(left.text, HasSubstr("CHECK failed: 1 == 2 (1 vs 2)"));
  EXPECT_THAT(left.text, HasSubstr(R"("about":{"model":"tiny"})"));
  EXPECT_THAT(left.text, HasSubstr(R"("request":"began","id":"gen-1"})"));
  EXPECT_THAT(left.text, HasSubstr("\"step\":12}"));  // the oldest of the 8 slots
  EXPECT_THAT(left.text, HasSubstr("\"step\":19}"));
  EXPECT_THAT(left.text, Not(HasSubstr("\"step\":11}")));
  EXPECT_THAT(left.text, HasSubstr("--- backtrace\n"));
  EXPECT_THAT(left.text, HasSubstr("VmRSS:"));
}

TEST_F(BlackBox, AFaultInAnotherThreadNamesTheThreadAndStillKills) {
  const ProcessEnd left = left_by([] {
    std::thread([] {
      pthread_setname_np(pthread_self(), "engine7");
      raise(SIGSEGV);
    }).join();
  });
  EXPECT_EQ(left.signal, SIGSEGV);
  EXPECT_THAT(left.text, HasSubstr("\"why\":\"signal 11 "));
  EXPECT_THAT(left.text, HasSubstr("\"thread\":\"engine7\""));
}

// Uses up a stack of any size: the sum after the call keeps it from becoming a loop.
[[gnu::noinline]] int descend(volatile int* depth) {
  volatile char frame[512];
  frame[0] = static_cast<char>(*depth);
  *depth = *depth + 1;
  return *depth < 0 ? 0 : descend(depth) + frame[0];
}

// The lines are more than a pipe holds, and no thread reads before the fault.
TEST_F(BlackBox, LinesThatWaitAreWrittenBeforeTheEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    const auto opened = black_box::open({.folder = folder_});
    const log::Writer writer;
    for (int i = 0; i < 10'000; ++i) log::info("line {}", i);
    if (opened) raise(SIGSEGV);
    _exit(99);
  }
  close(ends[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(text.contains(" line 0\n"));
  EXPECT_TRUE(text.contains(" line 9999\n"));
}

TEST_F(BlackBox, AStackOverflowOnAnyThreadLeavesAReport) {
  const ProcessEnd left = left_by([] {
    Thread({.name = "text3"}, [] {
      volatile int depth = 0;
      descend(&depth);
    }).join();
  });
  EXPECT_EQ(left.signal, SIGSEGV);
  EXPECT_THAT(left.text, HasSubstr("\"why\":\"signal 11 "));
  EXPECT_THAT(left.text, HasSubstr("\"thread\":\"text3\""));
}

TEST_F(BlackBox, WhatIsTooLongIsCutAndWhatNeedsEscapesIsNoHarm) {
  const ProcessEnd left = left_by([] {
    black_box::note(black_box::Ring::steps, "\"long\":\"{}\"", std::string(1000, 'x'));
    black_box::last_words("a \"quoted\"\nword");
    black_box::write("watchdog");
  });
  EXPECT_EQ(left.signal, 0);
  EXPECT_THAT(left.text, HasSubstr("\"why\":\"watchdog\",\"last_words\":\"a  quoted  word\""));
  EXPECT_THAT(left.text, HasSubstr("xxxx\n"));
}

TEST_F(BlackBox, NotesOfManyThreadsAreWhole) {
  const ProcessEnd left = left_by([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 20000; ++i)
          black_box::note(black_box::Ring::steps, "\"thread\":{},\"end\":{}", t, t);
      });
    for (std::thread& thread : threads) thread.join();
    black_box::write("done");
  });
  std::istringstream lines(left.text);
  int num_events = 0;
  for (std::string line; std::getline(lines, line) && !line.starts_with("---");) {
    const size_t at = line.find("\"thread\":");
    if (!line.starts_with("{\"at_us\":") || at == line.npos) continue;
    ++num_events;
    EXPECT_EQ(line.substr(at), fmt::format("\"thread\":{0},\"end\":{0}}}", line[at + 9]));
  }
  EXPECT_EQ(num_events, 8);
}

TEST_F(BlackBox, OldFilesGo) {
  for (int i = 0; i < 30; ++i)
    std::ofstream(folder_ / fmt::format("hocket-crash-10000000{:02}-1.jsonl", i)) << "{}";
  const ProcessEnd left = left_by([] { black_box::write("x"); });
  EXPECT_EQ(left.files.size(), static_cast<size_t>(black_box::kFilesKept));
}

TEST_F(BlackBox, AFolderThatCannotBeWrittenIsAnError) {
  std::ofstream(folder_ / "file") << "x";
  const auto opened = black_box::open({.folder = folder_ / "file" / "below", .about = ""});
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::io);
  EXPECT_FALSE(black_box::is_open());
  black_box::note(black_box::Ring::steps, "\"x\":{}", 1);
  EXPECT_FALSE(black_box::write("nobody listens"));
}

}  // namespace
}  // namespace hocket
