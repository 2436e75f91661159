// Pages in files (compute/kv/page_files.h) as a store. Files are touched on threads of its own, so
// that a mount that stops answering delays its callers at most by a limit.   Thread: any.
#pragma once

#include <filesystem>
#include <utility>

#include "base/timed_calls.h"
#include "compute/kv/page_files.h"
#include "engine/pages/page_store.h"

namespace hocket {

class FileStore final : public PageStore {
 public:
  // Limit of one read or write, beside the time that its bytes take at kMinBytesPerSecond.
  static constexpr Duration kLimit = std::chrono::seconds(5);
  static constexpr int64_t kMinBytesPerSecond = 1 << 20;
  // Limit of making the folder; a sleeping mount may need long.
  static constexpr Duration kOpenLimit = std::chrono::seconds(120);
  // A start waits at most this long for the list of the folder's files; then listing continues
  // while the server runs.
  static constexpr Duration kListWait = std::chrono::seconds(1);
  // The calls of a store in `folder`, which end within `limit` and the time of their bytes;
  // `num_threads` of them run at once.
  static std::shared_ptr<TimedCalls> calls_for(const std::filesystem::path& folder,
                                               Duration limit = kLimit, int num_threads = 2);

  FileStore(std::shared_ptr<PageFiles> files, std::shared_ptr<TimedCalls> calls,
            Duration retry_interval = kRetryInterval);

  PageTier tier() const override { return PageTier::file; }
  Result<std::unique_ptr<PromptPages>> open(const PagesWanted& wanted) override;
  bool has(const PageKey& key) override { return files_->has(key); }
  Figures figures() const override;
  Result<std::vector<bool>> exist(std::span<const PageKey> keys) override;
  Result<size_t> put(std::span<const Page> pages, const std::function<bool()>& is_over) override;
  // Fills `page`. Returns false if it is absent or damaged. Errors: io, timed_out.
  Result<bool> get(const PageKey& key, std::span<std::byte> page) {
    return end_read(begin_read(key, page.size()), page);
  }
  // A page that is read and checked while its caller does something else.
  struct BegunRead {
    PageKey key{};
    std::shared_ptr<std::byte[]> bytes;
    std::shared_ptr<Duration> took;  // known at the end of the call
    TimedCalls::Begun<bool> call;
  };
  BegunRead begin_read(const PageKey& key, size_t num_bytes);
  // As get(). `page` has the size that was asked for.
  Result<bool> end_read(const BegunRead& read, std::span<std::byte> page);
  // Says that nobody will ask for the page.
  void leave_read(const BegunRead& read) { calls_->leave(read.call); }

  const std::filesystem::path& folder() const { return files_->folder(); }
  // Returns the limit of all files together.
  int64_t max_bytes() const { return files_->max_bytes(); }
  // Does something else with files of the folder, which reads or writes `num_bytes`; the store is
  // away if that hangs.
  template <class T>
  Result<T> run(std::move_only_function<Result<T>()> call, size_t num_bytes = 0) {
    return watch(calls_->run<T>(std::move(call), time_of(num_bytes)));
  }
  // Returns the time that bytes may take beside kLimit.
  static Duration time_of(size_t num_bytes) {
    return from_seconds(static_cast<double>(num_bytes) / static_cast<double>(kMinBytesPerSecond));
  }
  // Has the disk learn which pages were used (PageFiles::touch_used()).
  void touch_used();

 private:
  template <class T>
  Result<T> watch(Result<T> result) {
    if (!result && result.error().code == ErrorCode::timed_out) {
      ++num_failures_;
      leave();
    }
    return result;
  }

  const std::shared_ptr<PageFiles> files_;
  const std::shared_ptr<TimedCalls> calls_;
  std::atomic<uint64_t> num_failures_{0};
};

}  // namespace hocket
