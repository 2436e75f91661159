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
  std::vector<int> answers = {1, 4, 16};            // at a time
  std::vector<int> contexts = {512};                // tokens of a prompt
  std::vector<int> drafts = {1, 2, 4, 8};           // fixed numbers
  int output_len = 256;                             // tokens of an answer
  int rounds = 3;                                   // counted rounds; one more comes before
  bool json = false;                                // one object a line
};

// A first answer to each prompt, without drafts, shows which drafts are right; so all ways must
// give the same tokens. Prints for each point the tokens/s without drafts, and for each way the
// median ratio to that, with its least and most over the rounds, in which all ways take turns; for
// the gate also the ratio to the best fixed number. Returns the exit status: that of the error if
// an answer failed, 1 if a token differed.
int bench_speculation(const BenchSpeculationOptions& options);

}  // namespace hocket
