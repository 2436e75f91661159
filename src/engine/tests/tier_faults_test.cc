// Tests pages in files that another number of ranks wrote, a disk that gets full, and where cached
// tokens count.
#include <sys/mount.h>

#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class TierFaultsTest : public testing::StoredPagesTest {
 protected:
  ServerSettings with_files(ServerSettings settings) const {
    settings.memory.kv_cache_dir = folder_.string();
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    return settings;
  }
  static CacheTierStats tier_of(Service& service) { return service.engine().stats().tier.value(); }
  fs::path any_file() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (is_page(entry)) return entry.path();
    return {};
  }
};

// States and windows come back with the pages.
TEST_F(TierFaultsTest, HybridModelsReadTheFilesOfAnotherNumberOfRanks) {
  for (const Form& form : {kDelta, kMimo}) {
    const Answer want = computed(plain(&form), question(3, 600));
    for (const auto& [num_writers, num_readers] :
         {std::pair(2, 1), std::pair(1, 2), std::pair(4, 1), std::pair(2, 4)}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, then {}", form.name, num_writers, num_readers));
      fs::remove_all(folder_);
      const auto on_ranks = [&](int ranks) { return with_files(plain(&form, ranks)); };
      {
        Service service(on_ranks(num_writers));
        expect_same(ask(service, question(3, 600)), want);
      }
      Service again(on_ranks(num_readers));
      const Answer got = ask(again, question(3, 600));
      expect_same(got, want);
      EXPECT_GE(got.summary.cached_tokens, 500);
      EXPECT_GT(tier_of(again).pages_read_total, 15u);
    }
  }
}

// The tree has the first part of the prompt and files have a second; the rest is computed. A token
// counts where this request found it.
TEST_F(TierFaultsTest, EachTokenCountsWhereItsRequestFoundIt) {
  const auto first = [](int num_tokens) {
    RequestInput input = question(1, 1500);
    input.prompt.resize(static_cast<size_t>(num_tokens));
    return input;
  };
  {
    Service service(with_files(plain()));
    ask(service, first(1000));
  }
  Service service(with_files(plain()));
  const auto stats = [&] { return service.engine().stats(); };
  const Answer one = ask(service, first(500));
  EXPECT_EQ(one.summary.cached_tokens, 480);
  EXPECT_EQ(one.summary.fetched_tokens, (PerTier<int>{480, 0, 0}));
  const Answer other = ask(service, first(1400));
  EXPECT_EQ(other.summary.cached_tokens, 992);
  EXPECT_EQ(other.summary.fetched_tokens, (PerTier<int>{992 - 480, 0, 0}));
  const Answer again = ask(service, first(1400));
  EXPECT_GE(again.summary.cached_tokens, 1399 / 32 * 32);
  EXPECT_EQ(again.summary.fetched_tokens, (PerTier<int>{}));
  const auto cached = static_cast<uint64_t>(480 + 992 + again.summary.cached_tokens);
  EXPECT_EQ(stats().scheduler.cached_tokens_total, cached);
  EXPECT_EQ(stats().fetched_tokens_total, (PerTier<uint64_t>{992, 0, 0}));
}

// A disk that has room for half of the pages, which only root can make. Those that found room are
// read after a restart.
TEST_F(TierFaultsTest, AFullDiskCostsNoAnswer) {
  {
    Service service(with_files(plain()));
    ask(service, question(1));
  }
  const auto one = static_cast<int64_t>(fs::file_size(any_file()));
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  const std::string size = fmt::format("size={}", 11 * (one + 8192));
  if (mount("none", folder_.c_str(), "tmpfs", 0, size.c_str()) != 0) GTEST_SKIP() << "no mount";
  const Answer want[] = {computed(plain(), question(1)), computed(plain(), question(2))};
  ServerSettings full = with_files(plain());
  full.memory.kv_cache_dir_gb = 1;  // more than there is
  for (const int seed : {1, 2, 1}) {
    Service service(full);
    const Answer got = ask(service, question(seed));
    expect_same(got, want[seed - 1]);
    if (seed == 2) {
      EXPECT_TRUE(service.read_until(
          [&] { return tier_of(service).left_out(UnwrittenReason::write_failed) == 1; }));
      EXPECT_TRUE(service.read_until([&] { return tier_of(service).num_left_out() > 10; }));
    }
    EXPECT_EQ(tier_of(service).damaged_total, 0u);
  }
  {
    Service service(full);
    EXPECT_GT(ask(service, question(1)).summary.cached_tokens, 200);
  }
  umount(folder_.c_str());
}

// Only root can make such a folder. One that has pages is read; one without costs no start.
TEST_F(TierFaultsTest, AReadOnlyFolderIsReadAndCostsNoStart) {
  fs::create_directories(folder_);
  if (mount("none", folder_.c_str(), "tmpfs", 0, "") != 0) GTEST_SKIP() << "no mount";
  const Answer want[] = {computed(plain(), question(1)), computed(plain(), question(2))};
  for (const bool has_pages : {false, true}) {
    SCOPED_TRACE(has_pages);
    if (has_pages) {
      Service service(with_files(plain()));
      expect_same(ask(service, question(1)), want[0]);
    }
    ASSERT_EQ(mount("none", folder_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0);
    {
      Service service(with_files(plain()));
      ASSERT_TRUE(service.works());
      const Answer got = ask(service, question(1));
      expect_same(got, want[0]);
      EXPECT_EQ(got.summary.cached_tokens > 600, has_pages);
      expect_same(ask(service, question(2)), want[1]);
      EXPECT_TRUE(service.read_until([&] { return tier_of(service).num_left_out() > 10; }));
      EXPECT_EQ(tier_of(service).pages_written_total, 0u);
    }
    ASSERT_EQ(mount("none", folder_.c_str(), "tmpfs", MS_REMOUNT, ""), 0);
  }
  umount(folder_.c_str());
}

}  // namespace
}  // namespace hocket
