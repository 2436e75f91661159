#include "engine/pages/file_store.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

// So few keys are looked for in one call that a disk which is only slow ends it in time.
constexpr size_t kKeysOfCall = 64;

// Bytes that a call owns. They are not cleared first: all of them are written before they are read.
struct OwnBytes {
  explicit OwnBytes(size_t count)
      : bytes(std::make_unique_for_overwrite<std::byte[]>(count)), size(count) {}
  std::span<std::byte> span() const { return {bytes.get(), size}; }

  std::unique_ptr<std::byte[]> bytes;
  size_t size;
};

class FilePromptPages final : public PromptPages {
 public:
  explicit FilePromptPages(FileStore& store) : store_(store) {}
  ~FilePromptPages() override { leave_reads(); }
  FilePromptPages(const FilePromptPages&) = delete;
  FilePromptPages& operator=(const FilePromptPages&) = delete;
  Result<size_t> last_held(std::span<const PageKey> keys) override {
    while (!keys.empty()) {
      const auto some = keys.last(std::min(keys.size(), kKeysOfCall));
      keys = keys.first(keys.size() - some.size());
      HOCKET_TRY(const std::vector<bool> there, store_.exist(some));
      for (size_t i = there.size(); i > 0; --i)
        if (there[i - 1]) return keys.size() + i;
    }
    return 0;
  }
  Result<void> expect(std::span<const PageKey> keys, PageKind kind) override {
    static_cast<void>(kind);
    leave_reads();
    expected_.assign(keys.begin(), keys.end());
    num_begun_ = 0;
    return {};
  }
  Result<bool> get(const PageKey& key, std::span<std::byte> page) override {
    while (std::cmp_less(reads_.size(), TierBuffers::kReadAtOnce) && num_begun_ < expected_.size())
      reads_.push_back(store_.begin_read(expected_[num_begun_++], page.size()));
    if (reads_.empty() || reads_.front().key != key) return store_.get(key, page);
    const FileStore::BegunRead read = std::move(reads_.front());
    reads_.pop_front();
    const Result<bool> found = store_.end_read(read, page);
    if (found) time_ahead_ = *read.took / TierBuffers::kReadAtOnce;
    return found;
  }
  Duration time_ahead() const override { return time_ahead_; }

 private:
  void leave_reads() {
    for (const FileStore::BegunRead& read : reads_) store_.leave_read(read);
    reads_.clear();
  }

  FileStore& store_;
  std::vector<PageKey> expected_;
  Duration time_ahead_{};
  size_t num_begun_ = 0;                    // in expected_
  std::deque<FileStore::BegunRead> reads_;  // those under way, in this order
};

}  // namespace

std::shared_ptr<TimedCalls> FileStore::calls_for(const std::filesystem::path& folder,
                                                 Duration limit, int num_threads) {
  return std::make_shared<TimedCalls>(TimedCalls::Options{
      .name = "kv_files",
      .target = fmt::format("the folder {}", folder.string()),
      .num_threads = num_threads,
      .limit = limit,
      .fix = "look whether its disk or mount still answers, or name another folder",
      .param = "kv-cache-dir"});
}

FileStore::FileStore(std::shared_ptr<PageFiles> files, std::shared_ptr<TimedCalls> calls,
                     Duration retry_interval)
    : PageStore(retry_interval), files_(std::move(files)), calls_(std::move(calls)) {
  HOCKET_CHECK((files_ != nullptr && calls_ != nullptr));
}

Result<std::unique_ptr<PromptPages>> FileStore::open(const PagesWanted& wanted) {
  static_cast<void>(wanted);
  if (is_away()) return nullptr;
  return std::make_unique<FilePromptPages>(*this);
}

PageStore::Figures FileStore::figures() const {
  const PageFiles::Figures files = files_->figures();
  return {.pages = files.files,
          .bytes = files.bytes,
          .evicted_total = files.evicted_total,
          .damaged_total = files.damaged_total,
          .failures_total = num_failures_};
}

Result<std::vector<bool>> FileStore::exist(std::span<const PageKey> keys) {
  std::vector<bool> all;
  while (!keys.empty()) {
    const auto some = keys.first(std::min(keys.size(), kKeysOfCall));
    keys = keys.subspan(some.size());
    HOCKET_TRY(const std::vector<bool> there,
               run<std::vector<bool>>(
                   [files = files_, own = std::vector<PageKey>(some.begin(), some.end())] {
                     std::vector<bool> found;
                     for (const PageKey& key : own) found.push_back(files->exists(key));
                     return Result<std::vector<bool>>(std::move(found));
                   }));
    all.insert(all.end(), there.begin(), there.end());
  }
  return all;
}

Result<size_t> FileStore::put(std::span<const Page> pages, const std::function<bool()>& is_over) {
  size_t num_there = 0;
  for (const Page& page : pages) {
    if (is_over()) break;
    OwnBytes own(page.bytes.size());
    std::memcpy(own.bytes.get(), page.bytes.data(), page.bytes.size());
    HOCKET_TRY(const bool written,
               run<bool>([files = files_, key = page.key,
                          own = std::move(own)] { return files->write(key, own.span()); },
                         page.bytes.size()));
    num_there += written ? 1 : 0;
  }
  return num_there;
}

// Uses that the disk does not learn cost no more than the order of deletion behind a restart.
void FileStore::touch_used() {
  if (!files_->has_untouched() || !takes_writes()) return;
  static_cast<void>(
      run<bool>([files = files_] { return files->touch_used(), Result<bool>(true); }));
}

FileStore::BegunRead FileStore::begin_read(const PageKey& key, size_t num_bytes) {
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(num_bytes);
  auto took = std::make_shared<Duration>();
  auto read = [files = files_, key, bytes, num_bytes, took] {
    const TimePoint begin = RealClock().now();
    Result<bool> found = files->read(key, {bytes.get(), num_bytes});
    *took = RealClock().now() - begin;
    return found;
  };
  auto call = calls_->begin<bool>(std::move(read), time_of(num_bytes));
  return {.key = key, .bytes = std::move(bytes), .took = std::move(took), .call = std::move(call)};
}

Result<bool> FileStore::end_read(const BegunRead& read, std::span<std::byte> page) {
  HOCKET_TRY(const bool found, watch(calls_->wait(read.call)));
  if (found) std::memcpy(page.data(), read.bytes.get(), page.size());
  return found;
}

}  // namespace hocket
