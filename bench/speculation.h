// `hocket bench speculation`: measures what drafts gain, with an acceptance that the bench imposes:
// without drafts, with fixed numbers of them, and as the gate chooses, by an engine without a
// server.
#pragma once

#include <vector>

#include "core/server_settings.h"

namespace hocket {

struct BenchSpeculationOptions {
  ServerSettings settings;
  std::vector<int> acceptances = {30, 60, 80, 90};  // percent of drafts that hold, at any position
  std::vector<int> answers = {1, 4, 16, 64};        // at a time
  std::vector<int> contexts = {512};                // tokens of a prompt
  std::vector<int> drafts = {1, 2, 4, 8};           // fixed numbers
  int output_len = 256;                             // tokens of an answer; then it begins anew
  int rounds = 3;                                   // counted rounds; one more comes before
  double seconds = 0.2;                             // how long blocks of steps are timed, at least
  bool json = false;                                // one object a line
};

// A first answer to each prompt, without drafts, shows which drafts are right; so all ways must
// give the same tokens. Blocks of steps with drafts take turns with blocks without. Tokens are
// those that the imposed acceptance makes expected, so that luck is no part of a ratio. Prints for
// each point the time of a step without drafts, the ratio of tokens/s with each fixed number to
// without, and for the gate the geometric mean of these ratios behind its first steps, with its
// standard error, the least and the most of a block, the mean in its first steps, and the ratio to
// the best fixed number. A median would leave out what trials cost. An engine's clock stands still
// while the other one is played. All prompts but for their last token are equal. Returns the exit
// status: that of the error if an answer failed, 1 if a token differed.
int bench_speculation(const BenchSpeculationOptions& options);

}  // namespace hocket
