// The texts under way, each with its request: the choices of all jobs, by the ids that the engine
// knows them by.   Thread: any.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "server/reply/live_texts.h"

namespace hocket {

struct ReplyJob;

class ReplyTable {
 public:
  struct Entry {
    std::shared_ptr<ReplyJob> job;
    size_t choice = 0;
  };
  // max_texts: beyond it add() answers queue_full.
  explicit ReplyTable(size_t max_texts);

  // Adds all choices of the job, or none. Errors: queue_full, unless the rank that had the answer
  // was lost, since it was within the limit there.
  Result<void> add(const std::shared_ptr<ReplyJob>& job);
  // Returns the text's job; null: it is not in the table.
  Entry find(RequestId id) const;
  void erase(RequestId id);
  void erase_all_of(const ReplyJob& job);
  size_t num_texts() const;
  std::vector<Entry> entries() const;  // in no order
  // Returns the oldest texts, at most `max_texts`. Waits for no job's lock.
  std::vector<LiveText> live_texts(size_t max_texts) const;

 private:
  const size_t max_texts_;
  mutable Mutex mutex_;  // locked after a job's mutex, never before it
  std::unordered_map<RequestId, Entry> entries_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
