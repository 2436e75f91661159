// `hocket bench one-batch`: times prefill and decode of a whole model. The bench makes the batches;
// there is no scheduler, sampler or server.
#pragma once

#include <string>
#include <vector>

#include "core/server_settings.h"

namespace hocket {

struct BenchOneBatchOptions {
  ServerSettings settings;  // without a model path, `shape` is used
  std::string shape = "small";
  std::vector<int> input_lens = {512, 2048};
  std::vector<int> batches = {1, 4, 16, 32};
  int context_len = 128;      // tokens that each sequence holds when decoding begins
  int shared_prefix = 0;      // tokens of context_len in pages that all share, to whole pages
  int output_len = 32;        // decode steps of a round
  int rounds = 5;             // counted rounds; one more comes before
  bool json = false;          // one object a line
  bool by_operation = false;  // prints the time of each operation below each case
};

// Prints one line a case, medians with least and most over the rounds:
//   decode b=4 at 128 | 68 tok/s (66-71) | 58555 us a step (56670-60439) | 0.140 of read bandwidth
//   | 0.083 of FMA peak | 0.75 of plan | 159 of 384 experts
// Every sequence and step has random tokens of its own, so that as many experts are hit as with
// real requests; the bytes of a step count the experts that it really hit.
// Returns the exit status: that of the error if there was one, else 0.
int bench_one_batch(BenchOneBatchOptions options);

}  // namespace hocket
