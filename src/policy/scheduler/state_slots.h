// The slots of the states of all requests, in models with delta nets: who has which slot, and which
// states the prefix cache has. A request has a block slot and a state slot of its own while it
// runs, and more state slots while states wait to be given to the tree (request_states.h).
//
//   admitted -> begin() .. each step: assign_slots() before it runs, commit() after its commit ..
//   -> end()
//
// In models without delta nets there are no slots, and all functions do nothing. Thread: engine.
#pragma once

#include <algorithm>
#include <vector>

#include "policy/cache/radix_cache.h"
#include "policy/cache/slot_allocator.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/request.h"

namespace hocket {

struct SchedulerOptions;

class StateSlots {
 public:
  // Both outlive it. `cache` holds states in slots of allocator(), so it may be made later.
  StateSlots(const SchedulerOptions& options, RadixCache& cache);

  bool enabled() const { return states_.num_slots() > 0; }
  // Returns the state slots for the cache; null if there are none.
  SlotAllocator* allocator() { return enabled() ? &states_ : nullptr; }
  int num_slots() const { return states_.num_slots(); }
  int num_free() const { return states_.num_free(); }

  // Returns true if a request can begin.
  bool has_room() const;
  // Gives the slots to a request that begins behind its match. Precondition: has_room().
  void begin(Request& request, PrefixMatch& match);
  // Returns the last border of a prompt whose state is cached.
  int last_cached_border(const Request& request) const;
  // Returns how many rows behind the first `end` tokens can be drafts: no border is behind any of
  // them, so no state depends on a draft that may fail.
  int rows_before_border(int end) const;
  // Says where the slice finds its last state and where it puts those that it computes.
  void assign_slots(Slice& slice);
  // Hands the states of a prompt at borders up to `end`, whose rows are committed, over to the
  // tree. Precondition: the request's lease covers them.
  void commit(Request& request, int end);
  // Keeps the last state of a request that ended, as far as its pages are the tree's, because the
  // next turn of a conversation begins with it; gives all slots back.
  void end(Request& request);
  // Returns a slot for a state that was read from a store or a peer, which the tree then gets; -1:
  // there is none.
  int take_to_restore() { return take_state(); }
  // Gives all slots back. Rows in flight may still use them; their next owner writes there later.
  void free(Request& request);

  struct OwnedSlots {
    int num_states = 0, num_blocks = 0;
    void add(const Request& request);
  };
  // Recounts the slots: each is free, in the tree, or a request's.
  void check(const OwnedSlots& by_requests) const;

 private:
  int state_spacing() const;
  int border_spacing(const Request& request) const;
  int take_state();
  PlannedState next_between(const Slice& slice) const;
  void assign_cached(Slice& slice);
  bool cache_at(Slice& slice, int border, bool for_edits = false);
  void save_last(RequestStates& held);

  const SchedulerOptions& options_;
  SlotAllocator states_, blocks_;
  RadixCache& cache_;
};

}  // namespace hocket
