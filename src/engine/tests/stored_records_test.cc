// Tests records of states and windows in files: damaged ones cost the prefix and no answer, and a
// page's or record's bits do not depend on the instruction set that wrote it.
#include <fstream>
#include <map>

#include "engine/tests/forced_isa.h"
#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class StoredRecordsTest : public StoredPagesTest {
 protected:
  ServerSettings with_folder(const Form& form) const {
    ServerSettings s = plain(&form);
    s.memory.kv_cache_dir = folder_.string();
    s.memory.hicache_storage_prefetch_policy = "wait_complete";
    return s;
  }
  // Returns the files of records: those of another size than the many pages.
  std::vector<fs::path> records() const {
    std::map<uintmax_t, std::vector<fs::path>> by_size;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (is_page(entry)) by_size[entry.file_size()].push_back(entry.path());
    const auto pages = std::ranges::max_element(
        by_size, {}, [](const auto& files) { return files.second.size(); });
    std::vector<fs::path> found;
    for (auto files = by_size.begin(); files != by_size.end(); ++files)
      if (files != pages) found.insert(found.end(), files->second.begin(), files->second.end());
    return found;
  }
};

TEST_F(StoredRecordsTest, ADamagedStateOrWindowIsComputedAnew) {
  for (const Form& form : {kDelta, kKimiLinear, kMimo}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    const Answer want = computed(plain(&form), question(1));
    {
      Service service(with_folder(form));
      ask(service, question(1));
    }
    const std::vector<fs::path> damaged = records();
    ASSERT_FALSE(damaged.empty());
    for (const fs::path& path : damaged) {
      const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      const char old = static_cast<char>(file.seekg(middle).get());
      file.seekp(middle).put(static_cast<char>(old ^ 1));
    }
    Service service(with_folder(form));
    const Answer got = ask(service, question(1));
    expect_same(got, want);
    EXPECT_EQ(got.summary.cached_tokens, 0) << "no record to go on from is whole";
    EXPECT_GE(service.engine().stats().tier->damaged_total, 1u);
  }
}

// CacheTierTest has the plainest body write. Here it reads what the widest one wrote.
TEST_F(StoredRecordsTest, ThePlainestBodyReadsWhatTheWidestWrote) {
  for (const Form& form : {kBundled, kDelta, kMimo, kMlaInt8Kv}) {
    SCOPED_TRACE(form.name);
    fs::remove_all(folder_);
    Answer want;
    {
      Service service(with_folder(form));
      want = ask(service, question(1));
    }
    const ForcedIsa forced("ref");
    Service service(with_folder(form));
    const Answer got = ask(service, question(1));
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 600);
  }
}

}  // namespace
}  // namespace hocket
