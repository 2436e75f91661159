// Reads stored pages ahead of the prompts that wait for them: from files, then from Redis, then
// from peers; in models with states up to the last border that has one.
//
//   add(task)                     orders the pages of a prompt
//   threads kv_read               hash, read and check one page after the other
//   pop() .. release()            the pages in order, then the end of the task
//
// A source is not read if that is expected to be slower than computing. A lack of memory ends the
// reading for one task. Owner: the rank's CacheTier. Thread: the engine's, beside the threads
// inside.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/log_limit.h"
#include "base/mailbox.h"
#include "base/thread.h"
#include "engine/pages/page_buffers.h"
#include "engine/pages/page_source.h"
#include "engine/pages/read_figures.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {

// Pages to read: those of `prompt` from `first` on.
struct ReadTask {
  RequestId request{};  // that waits for them, if there is one
  CacheNamespace name_space;
  std::vector<TokenId> prompt;
  size_t num_whole = 0;  // tokens of its whole pages
  int first = 0;
  int peer = -1;                          // PagesWanted::peer
  bool is_sent = false;                   // a peer computes the prompt: PagesWanted::computes
  int num_cached = 0;                     // pages behind which a model can continue already
  Duration to_compute = Duration::max();  // a source that would take longer is not read
  TimePoint until = TimePoint::max();     // no request waits for it after this time
  std::function<void()> at_end;           // empty, or to be called when all is read that will be
  std::atomic<bool> given_up{false};
  std::atomic<int64_t> begun_ns{0};  // when its reading began; 0: it has not
};

// A page or a state that was read, or the end of its task.
struct ReadPage {
  std::shared_ptr<ReadTask> task;
  std::optional<PageKind> kind;  // nullopt: all of the task was read that will be
  int index = 0;  // place of the page in the task's tokens; state: pages that it stands for
  PageBuffers::Id buffer = -1;
  PageTier tier = PageTier::file;  // the tier that it was read from
};

class PageReader {
 public:
  static constexpr size_t kMaxTasks = 64;
  static constexpr size_t kThreads = TierBuffers::kReaders;  // files alone have one

  struct Options {
    std::vector<PageSource*> sources;  // in the order in which they are asked
    PageKey form{};                    // PageKeys
    size_t page_tokens = 0;
    int64_t page_bytes = 0, state_bytes = 0;  // state_bytes == 0: the model has no states
    bool waits_for_networks = false;          // a source is one, so several threads read
  };
  // All that is borrowed outlives it.
  PageReader(Options options, TransferBuffers::Memory memory, ReadFigures& figures);
  // `wake` is called from any thread when pop() has something.
  void start(const Clock& clock, std::function<void()> wake);
  // Ends the threads, which leave the rest unread.
  void stop();

  // Returns false, and leaves the task, if kMaxTasks wait.
  [[nodiscard]] bool add(std::shared_ptr<ReadTask>& task) { return tasks_.push(task); }
  bool is_full() const { return tasks_.size() == kMaxTasks; }
  bool has_pages() const { return read_.size() > 0; }
  std::optional<ReadPage> pop() { return read_.pop(); }
  // Precondition: it is no end of a task, and not released yet.
  std::span<const std::byte> bytes_of(const ReadPage& page) {
    return buffers_.of(*page.kind).of(page.buffer);
  }
  void release(const ReadPage& page);
  // Returns true if computing is expected to be faster than reading that many pages from there.
  bool is_slower_than_computing(const PageSource& source, const ReadTask& task,
                                size_t num_pages) const;
  std::span<PageSource* const> sources() const { return options_.sources; }

 private:
  class TaskProgress;
  void run();
  void read(const std::shared_ptr<ReadTask>& task);
  void deliver(ReadPage page);

  const Options options_;
  const Clock* clock_ = nullptr;
  std::function<void()> wake_;
  ReadFigures& figures_;
  TransferBuffers buffers_;
  Mailbox<std::shared_ptr<ReadTask>> tasks_;
  Mailbox<ReadPage> read_;
  std::atomic<bool> stopping_{false};
  LogLimit exceptions_{std::chrono::seconds(60)};
  std::vector<Thread> threads_;  // last: they use all members above
};

}  // namespace hocket
