// `hocket bench peers`: this server beside llama.cpp and ik_llama.cpp, whose benches the user has.
#pragma once

#include <string>
#include <vector>

namespace hocket {

// Programs of one peer; empty paths: not run.
struct PeerPrograms {
  std::string bench;          // llama-bench: prefill, decode of one sequence, the version
  std::string batched_bench;  // llama-batched-bench: decode of several
};

struct BenchPeersOptions {
  PeerPrograms llama, ik;
  // The bench of ik_llama.cpp for batches feeds one and the same token to all sequences, which then
  // share their experts; true: it was changed to feed random ones.
  bool ik_random_tokens = false;
  // SHAPE-FORM=FILE: a GGUF file of that shape (small or mid, dummy_shape.h) and weight precision
  // (bf16, int8, int4), whose figures stand beside ours of the same name.
  std::vector<std::string> models;
  std::vector<int> input_lens = {512, 2048};
  std::vector<int> batches = {1, 16, 32};
  int context_len = 128;  // tokens that each sequence holds when decoding begins
  int output_len = 32;    // decode steps of a round
  int rounds = 3;
  bool json = false;  // one object a line
};

// One line a pass, medians with least and most over the rounds, the fraction of what the measured
// limits allow, and the ratio to the better peer:
//   prefill 512 | hocket 1408 (1390-1420) 0.67 | llama.cpp 590 (571-601) 0.28 | 2.39 x llama.cpp
//   (2.31-2.45)
// and the most memory each held, over the size of the peer's file. Every program runs as a child of
// its own, in turn, so that no side keeps the memory or the cores of another. Variables HOCKET_*
// reach ours. Returns the exit status: that of the error which hindered it, else 0.
int bench_peers(const BenchPeersOptions& options);

}  // namespace hocket
