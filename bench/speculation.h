// `hocket bench speculation`: measures what drafts gain, by engines without a server that take
// turns: one without drafts, one with fixed numbers of them (or one for each number), and one whose
// gate chooses.
#pragma once

#include <string>
#include <vector>

#include "core/server_settings.h"

namespace hocket {

struct BenchSpeculationOptions {
  ServerSettings settings;
  std::vector<int> acceptances = {30, 60, 80, 90};  // percent of drafts accepted, at any position
  std::vector<int> answers = {1, 4, 16, 64};        // at a time, over all ranks
  std::vector<int> contexts = {512};                // tokens of a prompt
  std::vector<int> drafts = {1, 2, 3, 4};           // fixed numbers
  std::vector<int> edits;  // instead of acceptances: percent of a quoted text's tokens with an edit
  std::string algorithm;   // instead of imposed drafts: those of this --speculative-algorithm
  int output_len = 256;    // tokens of an answer; then it begins again
  int rounds = 2;          // counted rounds
  double seconds = 0.3;    // how long blocks of steps are timed, at least, unless steps are long
  // Steps in which the gate may learn at the first acceptance of a group; later ones get 3 in 10.
  int gate_steps = 200;
  double point_seconds = 0;  // ends a point's rounds and learning early; 0: no limit
  bool json = false;         // one object a line
};

// A first answer to each prompt, without drafts, shows which drafts are right; so all ways must
// give the same tokens. Blocks of steps with drafts are played between two of the engine without
// drafts: one with a fixed number, two of the gate. Where a step takes more than 50 ms a block has
// four steps. Tokens are those that the imposed acceptance makes expected, so that luck is no part
// of a ratio; with `edits` they are those that were sampled. The engine without drafts lives as
// long as the bench; the others are started for a group and stopped behind it.
//
// With `algorithm` each fixed number has an engine of its own, answers are greedy, and the drafts
// are accepted as often as the model makes them right.
//
// Prints two tables, and with `edits` or `algorithm` only the second. The first has a row for each
// fixed number:
//   - the experts that a step touches in a layer, as they were counted;
//   - the bytes that it must read, as a multiple of those without drafts;
//   - its time, as a multiple of that without drafts.
// The second has a row for each point:
//   - tokens/s without drafts;
//   - the ratio of each fixed number to that;
//   - the gate behind its first steps: the geometric mean of these ratios with its standard error,
//     the least and the most of a block;
//   - the gate in its first steps: the mean;
//   - the gate's ratio to the best fixed number, with its standard error;
//   - the number of steps after which the gate had drafts;
//   - whether the gate meets the goals: 0.99 of off, 0.97 of the best fixed number, and 1.3 of off
//     for one answer that quotes. A goal that is missed by less than two standard errors is "in
//     noise". Where a fixed number gains 5 %, the gate has to find drafts within 200 steps.
// All prompts are equal but for their last token, and their keys count once. Returns the exit
// status: that of the error if an answer failed, 1 if a token differed.
int bench_speculation(const BenchSpeculationOptions& options);

}  // namespace hocket
