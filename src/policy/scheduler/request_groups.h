// Groups of waiting and running requests that share a key: the client (policy fair) or the routing
// key. The waiting queue asks for the head of the group whose turn it is:
//
//   fair          the group that was served least. Its counter adds prompt tokens computed, and
//                 tokens generated twice (Sheng et al., "Fairness in Serving Large Language
//                 Models"). A group that has requests again after a pause starts at the lowest
//                 counter of the active groups, so that a client cannot save up turns by staying
//                 away.
//   routing_key   the group of which most requests run, so that their prefixes stay warm
//
// Ties: the request that arrived first. Larger priority is before everything else. Cost: O(groups)
// per pass, O(log groups) per request; a generated token adds one number. Owner: the waiting queue.
// Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "policy/scheduler/request.h"

namespace hocket {

// Idle groups are forgotten when there are more groups than this.
inline constexpr size_t kMaxGroups = 16384;
inline constexpr int64_t kPromptTokenWeight = 1, kNewTokenWeight = 2;

struct RequestGroup {
  uint64_t key = 0;
  int64_t served = 0;  // weighted tokens
  int num_running = 0;
  std::deque<Request*> waiting;  // in the order in which they will be tried
  // In the pass skipped_in, the first num_skipped of `waiting` are skipped.
  size_t num_skipped = 0;
  uint64_t skipped_in = 0;

  bool active() const { return num_running > 0 || !waiting.empty(); }
};

class RequestGroups {
 public:
  enum class Criterion : uint8_t { least_served, most_running };
  explicit RequestGroups(Criterion criterion) : criterion_(criterion) {}

  // Adds a request and sets request.group. Call for a new request, and again whenever it is queued
  // again to the queue. If an allocation fails, throws, and the request does not wait.
  void push(Request& request, uint64_t key);
  // Call when the request no longer waits.
  void remove(Request& request);
  // Passes over the request for this pass. Precondition: it is the first of its group that is not
  // skipped.
  void skip(Request& request);
  // Call when the request begins to run, with `num_tokens` of its prompt to compute, and left()
  // when it stops running.
  void admitted(Request& request, int64_t num_tokens);
  void left(Request& request);

  // Begins a pass: every group is looked at again, and no request is skipped.
  void begin_pass() {
    ordered_ = false;
    ++pass_;
  }
  // Returns the first request of the group whose turn it is; null when all are taken or skipped.
  Request* head();

 private:
  size_t num_skipped(const RequestGroup& group) const {
    return group.skipped_in == pass_ ? group.num_skipped : 0;
  }
  bool used_up(const RequestGroup& group) const {
    return group.waiting.size() == num_skipped(group);
  }
  Request* first(const RequestGroup& group) const { return group.waiting[num_skipped(group)]; }
  void changed(const RequestGroup& group);
  bool later(const RequestGroup* a, const RequestGroup* b) const;
  int64_t lowest_served();
  void forget_idle();

  Criterion criterion_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestGroup>> groups_;
  std::vector<RequestGroup*> heap_;  // groups with requests to try; the one whose turn it is on top
  bool ordered_ = false;             // true: heap_ is in order, except perhaps for its top
  uint64_t pass_ = 1;
  int64_t floor_ = 0;                     // lowest counter of the active groups when last computed
  const RequestGroup* lowest_ = nullptr;  // the group that had it
};

}  // namespace hocket
