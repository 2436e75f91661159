// The states of one request, in models with delta nets. A state stands for the tokens up to a
// border; each is computed from the one before it, in another slot or in place.
//
//   tokens   |---- states of the tree, or for it ----|---- in the block slot ----|
//            0                                   last.end                  computed_len
#pragma once

#include <vector>

#include "core/state_slot.h"
#include "policy/cache/radix_cache.h"

namespace hocket {

// A state that the tree gets when its rows are committed. for_edits: it is one of those inside the
// last message, which take free slots only; stores get none of these.
struct PlannedState {
  StateSlot state;
  bool for_edits = false;
};

struct RequestStates {
  int block = -1;  // its block slot, while it is prefilling or running
  int own = -1;    // a state slot that only this request reads and writes, likewise
  // The state at the last border of the rows scheduled so far; end 0: none. It is in `own`, in a
  // slot of `planned`, or in the slot that `leased` pins.
  StateSlot last;
  // The state before `last` in an answer. The tree gets it if the answer ends before the rows that
  // made `last`; slot -1: none.
  StateSlot before;
  // The newest of the request's states that the tree has. It is pinned until the rows up to the
  // next border at which one could be kept are committed; no row reads it afterwards.
  StateLease leased;
  bool loads_state = false;  // the next rows begin a block: the block slot is filled from `last`
  // States of prompts that the tree gets when their rows are committed, by rising `end`.
  std::vector<PlannedState> planned;
  // Border at which the tree has or gets a state, the last one; behind a match that ends between
  // two borders of a peer, the border before it.
  int cached_to = 0;
  int branches_at = 0;  // border at which other prompts differ; 0: none is known
  int message_at = 0;   // border at which the prompt's last message begins; 0: none is known
  // Border at which the generation prompt begins; 0: none is known.
  int generation_prompt_at = 0;
  int edit_step = 0;  // tokens between two states inside the last message; 0: there are none
};

}  // namespace hocket
