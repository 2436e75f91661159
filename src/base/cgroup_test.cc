#include "base/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

namespace hocket {
namespace {

namespace fs = std::filesystem;

// Makes a control group tree in a folder of its own.
class CgroupTest : public testing::Test {
 protected:
  CgroupTest() : dir_(fs::path(testing::TempDir()) / unique_name()) {
    fs::create_directories(dir_);
  }
  ~CgroupTest() override { fs::remove_all(dir_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((dir_ / file).parent_path());
    std::ofstream(dir_ / file) << text;
  }
  CgroupLimits read() { return read_cgroup_limits(dir_ / "membership", dir_ / "fs"); }

 private:
  static std::string unique_name() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return std::string("hocket_") + test->name() + "_" + std::to_string(::getpid());
  }
  fs::path dir_;
};

TEST_F(CgroupTest, NothingReadableSetsNoLimit) {
  const CgroupLimits limits = read();
  EXPECT_FALSE(limits.memory_bytes);
  EXPECT_FALSE(limits.memory_headroom_bytes);
  EXPECT_FALSE(limits.cpus);
}

TEST_F(CgroupTest, V2TakesTheLowestOnTheWayUp) {
  write("membership", "0::/pod/box\n");
  write("fs/pod/memory.max", "1000\n");
  write("fs/pod/memory.current", "900\n");
  write("fs/pod/memory.stat", "anon 500\ninactive_file 300\n");
  write("fs/pod/cpu.max", "150000 100000\n");
  write("fs/pod/box/memory.max", "5000\n");
  write("fs/pod/box/memory.current", "100\n");
  write("fs/pod/box/cpu.max", "max 100000\n");
  const CgroupLimits limits = read();
  EXPECT_EQ(limits.memory_bytes, 1000);
  EXPECT_EQ(limits.memory_headroom_bytes, 400);  // 1000 - (900 - 300)
  EXPECT_EQ(limits.cpus, 1.5);
}

TEST_F(CgroupTest, V2MaxIsNoLimit) {
  write("membership", "0::/\n");
  write("fs/memory.max", "max\n");
  write("fs/cpu.max", "max 100000\n");
  const CgroupLimits limits = read();
  EXPECT_FALSE(limits.memory_bytes);
  EXPECT_FALSE(limits.cpus);
}

TEST_F(CgroupTest, APathOutsideTheMountMeansItsRoot) {
  write("membership", "0::/docker/0123abcd\n");
  write("fs/memory.max", "4096\n");
  write("fs/memory.current", "5000\n");
  EXPECT_EQ(read().memory_bytes, 4096);
  EXPECT_EQ(read().memory_headroom_bytes, 0);
}

TEST_F(CgroupTest, V1ReadsEachControllersOwnTree) {
  write("membership", "7:cpuset:/x\n5:cpu,cpuacct:/box\n3:memory:/box\n");
  write("fs/memory/box/memory.limit_in_bytes", "2048\n");
  write("fs/memory/box/memory.usage_in_bytes", "48\n");
  write("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("fs/cpu/box/cpu.cfs_quota_us", "50000\n");
  write("fs/cpu/box/cpu.cfs_period_us", "100000\n");
  write("fs/cpu/cpu.cfs_quota_us", "-1\n");
  write("fs/cpu/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = read();
  EXPECT_EQ(limits.memory_bytes, 2048);
  EXPECT_EQ(limits.memory_headroom_bytes, 2000);
  EXPECT_EQ(limits.cpus, 0.5);
}

}  // namespace
}  // namespace hocket
