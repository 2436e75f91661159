// `hocket bench one-batch`: prefill and decode of a whole model by batches made by hand, without
// scheduler, sampler and server.
#pragma once

#include <string>
#include <vector>

#include "core/server_settings.h"

namespace hocket {

struct BenchOneBatchOptions {
  ServerSettings settings;  // without a model path: --shape
  std::string shape = "small";
  std::vector<int> input_lens = {512, 2048};
  std::vector<int> batches = {1, 4, 16, 32};
  int context_len = 128;      // tokens that each sequence holds when decoding begins
  int shared_prefix = 0;      // of them, in the same pages for all sequences: whole pages
  int output_len = 32;        // decode steps of a round
  int rounds = 5;             // counted; one more goes before
  bool json = false;          // one object a line
  bool by_operation = false;  // what each operation takes, below each case
};

// One line a case, medians with least and most over the rounds:
//   decode b=4 at 128 | 68 tok/s (66-71) | 58555 us a step (56670-60439) | 0.140 of read bandwidth
//   | 0.083 of FMA peak | 159 of 384 experts
// Every sequence and every step gets its own random tokens, so that experts are hit as in life; a
// decode step's bytes count the experts that it really hit.
// Returns the exit status: that of the error which hindered it, else 0.
int bench_one_batch(BenchOneBatchOptions options);

}  // namespace hocket
