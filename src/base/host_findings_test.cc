// Reads facts from a tree of files that the test writes, and checks the findings about them.
#include "base/host_findings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace hocket {
namespace {

namespace fs = std::filesystem;

class HostFindings : public testing::Test {
 protected:
  HostFindings()
      : root_(fs::path(testing::TempDir()) / ("hocket_host_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "dev/shm");
    machine_.isa = Isa::avx512;
    machine_.num_cores = 8;
    machine_.memory_bytes = 64'000'000'000;
    machine_.memory_available_bytes = 60'000'000'000;
  }
  ~HostFindings() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  Finding find(std::string_view name) const {
    for (Finding& finding : judge(machine_, read_host_facts(root_)))
      if (finding.name == name) return finding;
    ADD_FAILURE() << "nothing is said of " << name;
    return {};
  }

  const fs::path root_;
  Machine machine_;
};

TEST_F(HostFindings, NothingReadableIsFineOrUnknown) {
  for (const Finding& finding : judge(machine_, read_host_facts(root_))) {
    EXPECT_NE(finding.severity, Severity::slow) << finding.name;
    EXPECT_NE(finding.severity, Severity::bad) << finding.name;
    EXPECT_EQ(finding.remedy.empty(), finding.severity == Severity::fine) << finding.name;
  }
  EXPECT_EQ(find("clock").value, "unknown");
  EXPECT_EQ(find("NUMA nodes").value, "1");
}

TEST_F(HostFindings, ClocksThatEnterTheKernelAreSlow) {
  const std::string file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
  write(file, "tsc");
  EXPECT_EQ(find("clock").severity, Severity::fine);
  write(file, "hpet");
  EXPECT_EQ(find("clock").severity, Severity::slow);
  EXPECT_NE(find("clock").remedy.find("tsc"), std::string::npos);
}

TEST_F(HostFindings, AnyGovernorThatSavesIsNamed) {
  write("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance");
  EXPECT_EQ(find("governor").severity, Severity::fine);
  write("sys/devices/system/cpu/cpufreq/policy12/scaling_governor", "powersave");
  EXPECT_EQ(find("governor").value, "performance, powersave");
  EXPECT_EQ(find("governor").severity, Severity::slow);
}

TEST_F(HostFindings, NodesAreToldOneByOne) {
  for (const char* id : {"0", "1"}) {
    write(fmt::format("sys/devices/system/node/node{}/cpulist", id), "0-3");
    write(fmt::format("sys/devices/system/node/node{}/meminfo", id),
          fmt::format("Node {} MemTotal:  1000000 kB\nNode {} MemFree:  500000 kB", id, id));
  }
  write("sys/devices/system/node/possible", "0-1");
  write("proc/sys/kernel/numa_balancing", "1");
  EXPECT_EQ(find("NUMA nodes").value, "2");
  EXPECT_EQ(find("node 1").value, "processors 0-3, 1.0 GB, 0.5 GB free");
  EXPECT_EQ(find("NUMA balancing").severity, Severity::slow);
}

TEST_F(HostFindings, MemoryThatIsMissing) {
  machine_.memory_available_bytes = 100'000'000;
  EXPECT_EQ(find("memory").severity, Severity::bad);
  machine_.memory_available_bytes = 10'000'000'000;
  EXPECT_EQ(find("memory").severity, Severity::hint);
  write("proc/meminfo", "SwapTotal:  8000000 kB\nSwapFree:  1000000 kB");
  EXPECT_EQ(find("swap").severity, Severity::slow);
  write("proc/meminfo", "SwapTotal:  8000000 kB\nSwapFree:  8000000 kB");
  EXPECT_EQ(find("swap").severity, Severity::fine);
}

TEST_F(HostFindings, AnInstructionThatIsNoFasterIsNamed) {
  EXPECT_EQ(find("instruction set").value, "avx512");
  machine_.features = {"avx512f", "avx512_bf16"};
  EXPECT_EQ(find("instruction set").value,
            "avx512; avx512_bf16 is not used, as it multiplies no faster here");
  machine_.isa = Isa::avx512_bf16;
  EXPECT_EQ(find("instruction set").value, "avx512_bf16");
  EXPECT_EQ(find("instruction set").severity, Severity::fine);
  machine_.isa = Isa::avx2;
  EXPECT_EQ(find("instruction set").severity, Severity::slow);
}

TEST_F(HostFindings, AForcedLevelIsSlowInBothDirections) {
  const Finding chosen = judge_level(Isa::avx512, Isa::avx512);
  EXPECT_EQ(chosen.value, "avx512");
  EXPECT_EQ(chosen.severity, Severity::fine);
  for (const Isa forced : {Isa::avx2, Isa::avx512_bf16, Isa::amx_emulated}) {
    const Finding finding = judge_level(forced, Isa::avx512);
    EXPECT_EQ(finding.value, fmt::format("{} is used, not avx512", isa_name(forced)));
    EXPECT_EQ(finding.severity, Severity::slow);
    EXPECT_EQ(finding.remedy, "unset HOCKET_ISA: avx512 is the fastest level here");
  }
}

TEST_F(HostFindings, QuotasHugePagesAndBacklogs) {
  machine_.num_cores = 3;
  write("proc/self/cgroup", "0::/a");
  write("sys/fs/cgroup/a/cpu.max", "250000 100000");
  EXPECT_EQ(find("cores").value, "3, a quota of 2.5");
  EXPECT_EQ(find("cores").severity, Severity::slow);
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  EXPECT_EQ(find("huge pages").severity, Severity::slow);
  write("proc/sys/net/core/somaxconn", "128");
  EXPECT_EQ(find("listen backlog").severity, Severity::hint);
  write("proc/sys/vm/overcommit_memory", "2");
  EXPECT_EQ(find("overcommit").severity, Severity::hint);
}

}  // namespace
}  // namespace hocket
