// Delays prompts until most ranks can begin one. Ranks that compute together wait for the slowest,
// so a prompt of one rank delays the answers of all. Before every step each rank sends a vote to
// all, and each computes the same verdict:
//
//   all ranks begin or continue a prompt, or none does   prompts may begin
//   only some do                                         they wait, max_passes steps at most
//   .. and no rank decodes or continues a prompt         prompts may begin: no answer is delayed
//
// Pure except for the count of steps.   Thread: engine.   Source: SGLang, prefill delayer.
#pragma once

#include <span>

namespace hocket {

// One rank's vote on the next step.
struct PrefillVote {
  bool begins = false;     // a prompt may begin
  bool continues = false;  // a prompt in chunks continues
  bool decodes = false;    // there are decode rows
};

class PrefillDelayer {
 public:
  // max_passes: steps in a row that may be delayed; 0: prompts are never delayed.
  explicit PrefillDelayer(int max_passes = 0) : max_passes_(max_passes) {}

  // Call once a step with the votes of all ranks. Returns true if prompts may begin; prompts in
  // chunks always continue.
  bool allows(std::span<const PrefillVote> votes);

 private:
  int max_passes_;
  int num_delayed_ = 0;  // steps delayed in a row so far
};

}  // namespace hocket
