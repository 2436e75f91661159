// All requests of a scheduler. Each is in exactly one of five lists, and has memory in three:
//
//   waiting (no page) -> chunked -> running -> leaving (rows of it are in flight)
//     ^---- retracted ----'-----------'    `-> finished (no page)
//
// Times are those of the step that moves a request. Owner: the scheduler. Thread: engine.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "policy/scheduler/kv_memory.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/running_batch.h"
#include "policy/scheduler/waiting_queue.h"

namespace hocket {

class RequestLists {
 public:
  // Both outlive it; requests that leave give their memory back to `memory`.
  RequestLists(const SchedulerOptions& options, KvMemory& memory);

  WaitingQueue waiting;
  // Requests whose prefill is partly computed or under way, in order of admission.
  std::vector<std::unique_ptr<Request>> chunked;
  RunningBatch running;

  // Requests in chunks and running ones.
  int num_active() const { return running.size() + static_cast<int>(chunked.size()); }
  // True if one more request may run.
  bool has_slot() const { return num_active() < max_running_; }
  // True if a request has rows in flight but will have no more.
  bool has_leaving() const { return !leaving_.empty(); }
  // True if no request waits, is held, or has memory.
  bool idle() const;
  // Returns null if no active request has the id.
  Request* find_active(RequestId id) const;
  // Call visit(Request&) for each active request, or for each that has memory.
  template <class Visit>
  void for_each_active(Visit&& visit) const;
  template <class Visit>
  void for_each_with_memory(Visit&& visit) const;

  // Puts an admitted request where it belongs; samples: its prompt ends in this step.
  void add_active(std::unique_ptr<Request> request, bool samples);
  // Takes the request of those in chunks, or of all active ones, that was admitted last.
  // Precondition: there is one.
  std::unique_ptr<Request> take_newest_chunked();
  std::unique_ptr<Request> take_newest();
  // Puts a request that was active back to the queue. Drops its keys and values but keeps its
  // generated tokens; an extend computes them again.
  void retract(std::unique_ptr<Request> request, TimePoint now);
  // Ends requests: close() at once, a request that has no rows in flight; remove_ended() those with
  // a finish reason, as soon as their rows are committed.
  void close(std::unique_ptr<Request> request, TimePoint now);
  void remove_ended(TimePoint now);
  // Makes sure that the next close() allocates nothing.
  void reserve_close();

  // Requests that ended since the last take_finished(), oldest first.
  int num_finished() const { return static_cast<int>(finished_.size()); }
  std::vector<std::unique_ptr<Request>> take_finished();

 private:
  void finish(std::unique_ptr<Request> request, TimePoint now);

  const int max_running_;
  KvMemory& memory_;
  std::vector<std::unique_ptr<Request>> leaving_, finished_;
};

// A request of `chunked` may be missing while it moves to `running`.
template <class Visit>
void RequestLists::for_each_active(Visit&& visit) const {
  for (const auto& request : chunked)
    if (request) visit(*request);
  for (const auto& request : running.requests()) visit(*request);
}

template <class Visit>
void RequestLists::for_each_with_memory(Visit&& visit) const {
  for_each_active(visit);
  for (const auto& request : leaving_) visit(*request);
}

}  // namespace hocket
