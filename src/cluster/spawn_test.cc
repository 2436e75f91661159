#include "cluster/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

namespace hocket {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns `nodes` nodes of `cores` cores, two threads per core: cpus n and n + nodes * cores share
// one.
std::vector<CpuLocation> machine_of(int nodes, int cores) {
  std::vector<CpuLocation> locations;
  for (int thread = 0; thread < 2; ++thread)
    for (int i = 0; i < nodes * cores; ++i)
      locations.push_back(
          {.cpu = thread * nodes * cores + i, .node = i / cores, .core = i % cores});
  return locations;
}

TEST(ShareCores, ThreadsOfACoreStayTogether) {
  EXPECT_THAT(share_cores(machine_of(1, 4), 2),
              ElementsAre(CoreSet{{0, 1, 4, 5}, {0}}, CoreSet{{2, 3, 6, 7}, {0}}));
}

TEST(ShareCores, ARankIsOnOneNodeWhereNumbersAllow) {
  EXPECT_THAT(share_cores(machine_of(2, 2), 2),
              ElementsAre(CoreSet{{0, 1, 4, 5}, {0}}, CoreSet{{2, 3, 6, 7}, {1}}));
  EXPECT_THAT(share_cores(machine_of(2, 2), 4),
              ElementsAre(CoreSet{{0, 4}, {0}}, CoreSet{{1, 5}, {0}}, CoreSet{{2, 6}, {1}},
                          CoreSet{{3, 7}, {1}}));
  EXPECT_THAT(share_cores(machine_of(4, 1), 2),
              ElementsAre(CoreSet{{0, 1, 4, 5}, {0, 1}}, CoreSet{{2, 3, 6, 7}, {2, 3}}));
}

TEST(ShareCores, EveryCoreIsUsedOnceWhereTheyDoNot) {
  for (const int ranks : {1, 3, 5}) {
    std::vector<int> used;
    for (const CoreSet& set : share_cores(machine_of(2, 4), ranks)) {
      EXPECT_FALSE(set.cpus.empty());
      used.insert(used.end(), set.cpus.begin(), set.cpus.end());
    }
    std::ranges::sort(used);
    EXPECT_EQ(used.size(), 16u) << ranks;
    EXPECT_TRUE(std::ranges::adjacent_find(used) == used.end()) << ranks;
  }
}

TEST(ShareCores, MoreRanksThanCoresShareThem) {
  EXPECT_THAT(share_cores(machine_of(1, 2), 3),
              ElementsAre(CoreSet{{0, 2}, {0}}, CoreSet{{1, 3}, {0}}, CoreSet{{0, 2}, {0}}));
}

TEST(ShareCores, ThisMachineIsRead) {
  const Machine machine = inspect_machine();
  const auto locations = read_cpu_locations(machine);
  EXPECT_EQ(static_cast<int>(locations.size()),
            std::min(machine.num_cores, static_cast<int>(machine.cpus.size())));
  EXPECT_FALSE(share_cores(locations, 1).front().cpus.empty());
}

class LocalRanksTest : public testing::Test {
 protected:
  static RankProgram shell(int rank, const std::string& script, CoreSet cores = {}) {
    return {.rank = rank, .arguments = {"-c", script}, .cores = std::move(cores)};
  }
  static LocalRanks::End wait_for_one(LocalRanks& ranks) {
    for (int i = 0; i < 5000; ++i) {
      if (auto end = ranks.poll()) return *end;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return {};
  }
  const std::string shell_ = "/bin/sh";
};

TEST_F(LocalRanksTest, TellsHowARankEnded) {
  auto ranks = LocalRanks::spawn(shell_, {shell(1, "exit 3"), shell(2, "exec sleep 100")}, 1);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(wait_for_one(*ranks).text, "rank 1 ended with status 3");
  EXPECT_EQ(ranks->pid(1), -1);
  EXPECT_FALSE(ranks->poll());
  kill(ranks->pid(2), SIGKILL);
  const auto end = wait_for_one(*ranks);
  EXPECT_EQ(end.text, "rank 2 was ended by signal 9 (Killed)");
  EXPECT_EQ(end.status, 137);
}

TEST_F(LocalRanksTest, PassesSignalsOnThatTheParentIgnores) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  auto ranks = LocalRanks::spawn(shell_, {shell(1, "exec sleep 100")}, 1);
  std::signal(SIGINT, before);
  ASSERT_TRUE(ranks);
  ranks->signal(SIGINT);
  EXPECT_EQ(wait_for_one(*ranks).status, 128 + SIGINT);
}

TEST_F(LocalRanksTest, EndsThoseThatDoNotListen) {
  pid_t pid = -1;
  {
    const std::string ready = testing::TempDir() + fmt::format("spawn_test_{}", getpid());
    auto ranks = LocalRanks::spawn(
        shell_, {shell(1, "trap '' TERM; touch " + ready + "; while :; do sleep 0.05; done")}, 1);
    ASSERT_TRUE(ranks);
    ranks->patience = std::chrono::milliseconds(100);
    pid = ranks->pid(1);
    for (int i = 0; i < 5000 && access(ready.c_str(), F_OK) != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    unlink(ready.c_str());
  }
  EXPECT_EQ(kill(pid, 0), -1) << "it lives on";
}

TEST_F(LocalRanksTest, WhoWasToldToEndIsNotToldAgain) {
  const std::string path = testing::TempDir() + fmt::format("spawn_test_told_{}", getpid());
  {
    auto ranks = LocalRanks::spawn(
        shell_,
        {shell(1, "trap 'echo told >> " + path + "' TERM; touch " + path + "; while [ ! -s " +
                      path + " ]; do sleep 0.02; done; sleep 0.1; sleep 0.1")},
        1);
    ASSERT_TRUE(ranks);
    for (int i = 0; i < 5000 && access(path.c_str(), F_OK) != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ranks->signal(SIGTERM);
  }
  std::ifstream in(path);
  const std::string told{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(told, "told\n");
  unlink(path.c_str());
}

TEST_F(LocalRanksTest, ARankKeepsToItsCores) {
  const int cpu = inspect_machine().cpus.back();
  const std::string path = testing::TempDir() + fmt::format("spawn_test_cpus_{}", getpid());
  const std::string script = "grep Cpus_allowed_list /proc/self/status > " + path;
  auto ranks = LocalRanks::spawn(shell_, {shell(1, script, {{cpu}, {0}})}, 1);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(wait_for_one(*ranks).status, 0);
  std::string name, value;
  std::ifstream(path) >> name >> value;
  EXPECT_EQ(value, std::to_string(cpu));
  unlink(path.c_str());
}

TEST_F(LocalRanksTest, ARankHasItsVariablesBesideOurs) {
  setenv("HOCKET_SPAWN_TEST", "ours", 1);
  setenv("HOCKET_SPAWN_TEST_KEPT", "kept", 1);
  RankProgram program = shell(1, R"(test "$HOCKET_SPAWN_TEST/$HOCKET_SPAWN_TEST_KEPT" = its/kept)");
  program.variables = {"HOCKET_SPAWN_TEST=its"};
  auto ranks = LocalRanks::spawn("/bin/bash", {program}, 1);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(wait_for_one(*ranks).status, 0);
}

TEST_F(LocalRanksTest, ATerminalsSignalsReachTheParentAlone) {
  auto ranks = LocalRanks::spawn(shell_, {shell(1, "exec sleep 100")}, 1);
  ASSERT_TRUE(ranks);
  EXPECT_EQ(getpgid(ranks->pid(1)), ranks->pid(1));
}

TEST_F(LocalRanksTest, WhatCannotBeStartedIsNamed) {
  const auto ranks = LocalRanks::spawn("/no/such/program", {shell(2, "")}, 1);
  EXPECT_EQ(ranks.error().code, ErrorCode::io);
  EXPECT_THAT(ranks.error().message, HasSubstr("cannot start rank 2 (/no/such/program): No such"));
  EXPECT_FALSE(LocalRanks::spawn(shell_, {shell(3, "", {{99'999}, {0}})}, 1));
}

TEST_F(LocalRanksTest, NoRankOutlivesAKilledParent) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // so that this process sees the orphan end
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto ranks = LocalRanks::spawn(shell_, {shell(1, "exec sleep 100")}, 1);
    const pid_t pid = ranks ? ranks->pid(1) : -1;
    (void)!write(ends[1], &pid, sizeof pid);
    raise(SIGKILL);
  }
  pid_t orphan = -1;
  ASSERT_EQ(read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  ASSERT_GT(orphan, 0);
  waitpid(parent, nullptr, 0);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 5000 && ended == 0; ++i) {
    ended = waitpid(orphan, &status, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ended, orphan);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  close(ends[0]);
  close(ends[1]);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(LocalRanksTest, OwnProgramIsThisTest) {
  EXPECT_THAT(own_program().value(), HasSubstr("cluster_test"));
}

}  // namespace
}  // namespace hocket
