// Requests that share a key: those of one client (policy fair), or with one routing key. Each group
// waits in line; the queue asks which group's turn it is.
//
//   fair          the group that was served least: a virtual counter of prompt tokens computed and
//                 twice the tokens generated (Sheng et al., "Fairness in Serving Large Language
//                 Models"). A group that comes back after a pause starts at the lowest counter of
//                 the active ones, so that nobody saves up by staying away.
//   routing_key   the group of which most requests run, so that their prefixes stay warm
//
// Ties: the request that came first. Larger priority goes before everything else.
// Cost: O(groups) once a pass, O(log groups) a request; a generated token adds one number.
// Owner: the waiting queue.   Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "policy/scheduler/request.h"

namespace hocket {

// Idle groups are remembered up to this many groups in all.
inline constexpr size_t kGroupsMax = 16384;
inline constexpr int64_t kPromptTokenWeight = 1, kNewTokenWeight = 2;

struct RequestGroup {
  uint64_t key = 0;
  int64_t served = 0;  // weighted tokens
  int num_running = 0;
  std::deque<Request*> waiting;  // in the order in which they will be tried
  // The first so many of them are skipped, in the pass of that number.
  size_t num_skipped = 0;
  uint64_t skipped_in = 0;

  bool active() const { return num_running > 0 || !waiting.empty(); }
};

class RequestGroups {
 public:
  enum class Rank : uint8_t { least_served, most_running };
  explicit RequestGroups(Rank rank) : rank_(rank) {}

  // Sets request.group. Once for a new request, and again whenever it comes back to the queue.
  // If an allocation fails, throws, and the request does not wait.
  void push(Request& request, uint64_t key);
  // It waits no more.
  void remove(Request& request);
  // Pre: the head, or the first of its group that is not skipped. It is no head in this pass.
  void skip(Request& request);
  // It runs from now on, with `num_tokens` of its prompt to compute; until left().
  void admitted(Request& request, int64_t num_tokens);
  void left(Request& request);

  // Anything may have changed: look at every group again. Nobody is skipped any more.
  void begin_pass() {
    ordered_ = false;
    ++pass_;
  }
  // The first request of the group whose turn it is; null when nobody is left.
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

  Rank rank_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestGroup>> groups_;
  std::vector<RequestGroup*> heap_;  // of those that wait; whose turn it is on top
  bool ordered_ = false;             // heap_ is what it says
  uint64_t pass_ = 1;
  int64_t floor_ = 0;                     // lowest counter of the active groups when last looked up
  const RequestGroup* lowest_ = nullptr;  // the group that had it
};

}  // namespace hocket
