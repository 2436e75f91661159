// Loading a sharded folder takes the packed weights and at most 15 % more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "compute/weights/loader.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/test_folder.h"

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

// Bytes of a line of /proc/self/status, as "VmRSS:".
int64_t memory_now(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::stoll(line.substr(field.size())) * 1024;
  return 0;
}
// Starts the peak anew.
bool forget_peak() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

TEST(LoadingMemory, PeaksAtMost15PercentAboveThePackedWeights) {
#ifdef HOCKET_SHADOW_MEMORY
  GTEST_SKIP() << "a sanitizer's own memory would be measured too";
#endif
  const int hidden = 2048, shards = 3, a_shard = 4;  // 12 matrices of 16 MB in float32
  TestFolder folder;
  for (int shard = 0; shard < shards; ++shard) {
    for (int i = 0; i < a_shard; ++i) {
      const std::string name = "m" + std::to_string(shard * a_shard + i) + ".weight";
      folder.add(name, "F32", {hidden, hidden}, std::vector<float>(hidden * hidden, 1.5f));
    }
    folder.write_file("shard" + std::to_string(shard) + ".safetensors");
  }
  folder.write_index();

  const auto describe = [&](WeightLoader& loader) {
    for (int i = 0; i < shards * a_shard; ++i)
      loader.matrix("m" + std::to_string(i) + ".weight", hidden, hidden);
  };
  if (!forget_peak()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written here";
  const int64_t before = memory_now("VmRSS:");
  const auto source = open_model_weights(folder.path());
  ASSERT_TRUE(source.has_value());
  WorkerPool workers({.num_workers = 2, .cpus = {}});
  WeightLoader::Options options{.source = source->get(), .workers = &workers};
  WeightLoader plan = WeightLoader::measuring(options);
  describe(plan);
  options.bytes = plan.bytes();
  auto loader = WeightLoader::loading(options);
  ASSERT_TRUE(loader.has_value());
  describe(*loader);
  ASSERT_TRUE(loader->status().has_value());
  const int64_t grown = memory_now("VmHWM:") - before, packed = plan.bytes();
  std::printf("loading %.0f MB of weights from float32 shards: peak %.1f MB, %.3f of it\n",
              packed / 1e6, grown / 1e6, double(grown) / packed);
  EXPECT_GE(grown, packed);
  EXPECT_LE(grown, 1.15 * packed);
}

}  // namespace
}  // namespace hocket
