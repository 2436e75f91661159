// Ranks that compute together wait for the slowest, and a prompt of one holds up the answers of
// all: so prompts are better begun by all at once. Every rank votes before every step, all hear the
// same votes, and this finds the same verdict on each of them.
//
//   everybody could begin a prompt, or nobody     they may
//   some could                                    they wait, but for at most so many steps in a row
//   .. and one of them has hardly anything        they may: memory lies idle
//   .. and nobody has anything else to run        they may: there is nobody to spare
//
// Pure but for the count of steps.   Thread: engine.   Source: scheduling.md, section 2.8.
#pragma once

#include <span>

namespace hocket {

// Of one rank, on the step to come.
struct PrefillVote {
  bool begins = false;     // a prompt may begin
  bool continues = false;  // one in chunks goes on
  bool decodes = false;    // rows of answers
  bool starves = false;    // less of its KV pages is in use than the watermark
};

class PrefillDelayer {
 public:
  // max_passes: in a row; 0: prompts are never delayed.
  explicit PrefillDelayer(int max_passes = 0) : max_passes_(max_passes) {}

  // Once a step, with the votes of all ranks: whether prompts may begin. Those in chunks always go
  // on.
  bool allows(std::span<const PrefillVote> votes);

 private:
  int max_passes_;
  int num_delayed_ = 0;  // in a row
};

}  // namespace hocket
