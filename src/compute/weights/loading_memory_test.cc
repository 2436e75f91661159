// Loading a sharded folder takes at most 15 % more memory than the packed weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "compute/weights/loader.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/weight_folder_testing.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HOCKET_SHADOW_MEMORY 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HOCKET_SHADOW_MEMORY 1
#endif

namespace hocket {
namespace {

// Returns the bytes in a line of /proc/self/status, for example "VmRSS:".
int64_t memory_now(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::stoll(line.substr(field.size())) * 1024;
  return 0;
}
// Resets the peak of the process's memory.
bool forget_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

struct Shards {
  int num_files, matrices_a_file, n, k;
};

// Loads matrices from float32 shards. Returns the growth of the process at its peak, divided by the
// packed bytes; 0 if that cannot be measured.
double peak_of_loading(const Shards& shards) {
  const int num = shards.num_files * shards.matrices_a_file;
  TestFolder folder;
  for (int file = 0; file < shards.num_files; ++file) {
    for (int i = 0; i < shards.matrices_a_file; ++i) {
      const std::string name = "m" + std::to_string(file * shards.matrices_a_file + i) + ".weight";
      folder.add(name, "F32", {shards.n, shards.k},
                 std::vector<float>(size_t(shards.n) * shards.k, 1.5f));
    }
    folder.write_file("shard" + std::to_string(file) + ".safetensors");
  }
  folder.write_index();

  const auto describe = [&](WeightLoader& loader) {
    for (int i = 0; i < num; ++i)
      loader.matrix("m" + std::to_string(i) + ".weight", shards.n, shards.k);
  };
  if (!forget_peak()) return 0;
  const int64_t before = memory_now("VmRSS:");
  const auto source = open_model_weights(folder.path());
  WorkerPool workers({.num_workers = 2, .cpus = {}});
  WeightLoader::Options options{.source = source.value().get(), .workers = &workers};
  WeightLoader plan = WeightLoader::measuring(options);
  describe(plan);
  options.bytes = plan.bytes();
  auto loader = WeightLoader::loading(options);
  describe(loader.value());
  EXPECT_TRUE(loader->status().has_value());
  const int64_t grown = memory_now("VmHWM:") - before, packed = plan.bytes();
  std::printf("loading %.0f MB of weights from %d float32 matrices: peak %.1f MB, %.3f of it\n",
              packed / 1e6, num, grown / 1e6, double(grown) / packed);
  return double(grown) / packed;
}

TEST(LoadingMemory, PeaksAtMost15PercentAboveThePackedWeights) {
#ifdef HOCKET_SHADOW_MEMORY
  GTEST_SKIP() << "a sanitizer's own memory would be measured too";
#endif
  // Matrices of 16 MB each, then many small ones: a page of each small one would stay mapped if
  // neighbours of a touched page were not given back.
  for (const Shards& shards :
       {Shards{.num_files = 3, .matrices_a_file = 4, .n = 2048, .k = 2048},
        Shards{.num_files = 2, .matrices_a_file = 300, .n = 256, .k = 320}}) {
    const double peak = peak_of_loading(shards);
    if (peak == 0) GTEST_SKIP() << "/proc/self/clear_refs cannot be written here";
    EXPECT_GE(peak, 1);
    EXPECT_LE(peak, 1.15);
  }
}

}  // namespace
}  // namespace hocket
