// Reads stored pages ahead of the prompts that wait for them: from files, then from Redis, then
// from peers; in models with states up to the last border that has one.
//
//   add(task)                     orders the pages of a prompt
//   threads kv_read               hash, read and check one page after the other, of files two at
//   once threads kv_await              the same for prompts that peers compute, behind all other
//   sources pop() .. release()            the pages in order, then the end of the task
//
// A peer may compute for minutes, so prompts that are sent to one keep no other from its pages.
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
#include "engine/pages/read_queue.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {

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
  static constexpr size_t kThreads = TierBuffers::kReaders;  // kv_read; files alone have one

  struct Options {
    std::vector<PageSource*> sources;  // in the order in which they are asked
    PageKey form{};                    // PageKeys
    size_t page_tokens = 0;
    int64_t page_bytes = 0, state_bytes = 0;  // state_bytes == 0: the model has no states
    size_t border_tokens = 1;                 // states lie behind multiples of these tokens
    size_t min_sent_tokens = 0;       // a prompt that lacks fewer is computed here, not by a peer
    bool waits_for_networks = false;  // a source is one, so several threads read
    size_t num_senders = 0;           // threads kv_await; 0: no source computes
  };
  // All that is borrowed outlives it.
  PageReader(Options options, TransferBuffers::Memory memory, ReadFigures& figures);
  // `wake` is called from any thread when pop() has something.
  void start(const Clock& clock, std::function<void()> wake);
  // Ends the threads, which leave the rest unread.
  void stop();

  // Returns false, and leaves the task, if kMaxTasks wait.   Precondition: only a reader with
  // threads kv_await gets one that is sent.
  [[nodiscard]] bool add(std::shared_ptr<ReadTask>& task) {
    return !is_full() && tasks_.push(task);
  }
  bool is_full() const { return num_waiting() >= kMaxTasks; }
  // Returns how many tasks wait for their turn.
  size_t num_waiting() const { return tasks_.size() + sent_.size(); }
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
  void run_sent();
  std::shared_ptr<TaskProgress> read(const std::shared_ptr<ReadTask>& task);
  void guard(const std::function<void()>& reading);
  void deliver(ReadPage page);

  const Options options_;
  const Clock* clock_ = nullptr;
  std::function<void()> wake_;
  ReadFigures& figures_;
  TransferBuffers buffers_;
  ReadQueue tasks_;
  Mailbox<std::shared_ptr<TaskProgress>> sent_;  // those that a peer is to compute now
  Mailbox<ReadPage> read_;
  std::atomic<bool> stopping_{false};
  LogLimit exceptions_{std::chrono::seconds(60)};
  std::vector<Thread> threads_;  // last: they use all members above
};

}  // namespace hocket
