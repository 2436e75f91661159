// A rank whose process dies by SIGKILL, while the other ranks are threads of the test. Tests only.
//
//   the test      KilledRank(way, "UcxMortal.DISABLED_Rank", task) .. on_survivors(..)
//   that test, in a process of its own      begin_killed_rank() .. die()
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "compute/comm/ucx_testing.h"

namespace hocket::testing {

inline constexpr int kDeathTestRanks = 3, kKilledRank = 1;
inline constexpr const char* kKilledRankRole =
    "HOCKET_TEST_UCX_ROLE";  // "tcp 5 6 task": way, in, out

inline void put(int fd, std::span<const std::byte> bytes) {
  const uint64_t length = bytes.size();
  ASSERT_EQ(write(fd, &length, sizeof(length)), ssize_t{sizeof(length)});
  ASSERT_EQ(write(fd, bytes.data(), length), static_cast<ssize_t>(length));
}

inline std::vector<std::byte> take(int fd) {
  uint64_t length = 0;
  if (read(fd, &length, sizeof(length)) != ssize_t{sizeof(length)}) return {};
  std::vector<std::byte> bytes(length);
  if (read(fd, bytes.data(), length) != static_cast<ssize_t>(length)) bytes.clear();
  return bytes;
}

inline UcxOptions killed_rank_options(const std::string& way) {
  return way == "tcp" ? ucx_tcp() : ucx_shared_memory();
}

// The state of the process that is to die: its end, connected to the others, and its task. Without
// an end, this process is not such a one.
struct KilledRankLife {
  std::unique_ptr<UcxTransport> end;
  std::string task;
  int in = -1;

  void wait_for_signal() const { take(in); }  // until KilledRank::go_on()
};

inline KilledRankLife begin_killed_rank() {
  const char* role = std::getenv(kKilledRankRole);
  if (role == nullptr) return {};
  std::array<char, 16> way{};
  int in = -1, out = -1, task = 0;
  HOCKET_CHECK(std::sscanf(role, "%15s %d %d %n", way.data(), &in, &out, &task) == 3);
  auto end = UcxTransport::create(kKilledRank, kDeathTestRanks, killed_rank_options(way.data()));
  HOCKET_CHECK(end.has_value());
  put(out, (*end)->address());
  std::array<std::vector<std::byte>, kDeathTestRanks> bytes;
  std::array<std::span<const std::byte>, kDeathTestRanks> addresses;
  for (size_t rank = 0; rank < kDeathTestRanks; ++rank) addresses[rank] = bytes[rank] = take(in);
  HOCKET_CHECK((*end)->connect(addresses).has_value());
  return {.end = std::move(*end), .task = role + task, .in = in};
}

[[noreturn]] inline void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// The dying process as the test sees it; it must end by die().
class KilledRank {
 public:
  KilledRank(const std::string& way, const std::string& test, const std::string& task = "") {
    std::array<int, 2> to{}, from{};
    HOCKET_CHECK(pipe(to.data()) == 0 && pipe(from.data()) == 0);
    in_ = from[0], out_ = to[1];
    for (const int fd : {in_, out_}) fcntl(fd, F_SETFD, FD_CLOEXEC);
    setenv(kKilledRankRole, fmt::format("{} {} {} {}", way, to[0], from[1], task).c_str(), 1);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    std::string self = "/proc/self/exe", filter = "--gtest_filter=" + test,
                also = "--gtest_also_run_disabled_tests";
    char* const arguments[] = {self.data(), filter.data(), also.data(), nullptr};
    HOCKET_CHECK(posix_spawn(&pid_, self.c_str(), &quiet, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&quiet);
    unsetenv(kKilledRankRole);
    close(to[0]), close(from[1]);
  }
  KilledRank(const KilledRank&) = delete;
  KilledRank& operator=(const KilledRank&) = delete;
  ~KilledRank() {
    close(in_), close(out_);
    int status = 0;
    waitpid(pid_, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  std::vector<std::byte> address() { return take(in_); }
  void send_addresses(const std::vector<std::vector<std::byte>>& addresses) {
    for (const auto& address : addresses) put(out_, address);
  }
  void go_on() { put(out_, {}); }
  // Waits for the end of the process for at most 10 s; returns false if it still lives.   Thread:
  // any.
  bool wait_until_dead() const {
    for (int i = 0; i < 10'000; ++i) {
      siginfo_t info{};
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG);
      if (info.si_pid == pid_) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
};

// Runs body(rank's end) on a thread for each of the other ranks, until all have returned. All ranks
// are connected before the first body runs.
inline void on_survivors(KilledRank& killed, const UcxOptions& options,
                         const std::function<void(std::unique_ptr<UcxTransport>)>& body) {
  UcxAddressExchange exchange(kDeathTestRanks, options, kDeathTestRanks - 1);
  exchange.publish(kKilledRank, killed.address());
  std::vector<std::jthread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      auto end = exchange.join(rank);
      if (rank == 0) killed.send_addresses(exchange.addresses());
      body(std::move(end));
    });
  }
}

}  // namespace hocket::testing
