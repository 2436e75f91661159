// `hocket bench peers`: compares this server with llama.cpp and ik_llama.cpp by their own benches,
// which the user provides.
#pragma once

#include <string>
#include <vector>

namespace hocket {

// The programs of one peer. A program whose path is empty is not run.
struct PeerPrograms {
  std::string bench;          // llama-bench: prefill, decode of one sequence, version
  std::string batched_bench;  // llama-batched-bench: decode of several sequences
};

struct BenchPeersOptions {
  PeerPrograms llama, ik;
  // ik_llama.cpp's bench for batches feeds the same token to all sequences, which then share their
  // experts. True if it was changed to feed random tokens.
  bool ik_random_tokens = false;
  // Each is SHAPE-FORM=FILE: a GGUF file of that shape (dummy_shape.h) and weight
  // precision (bf16, int8, int4, mxfp4). hocket runs the same shape and precision beside it. With
  // the form gguf it reads the file itself, and SHAPE is only a name.
  std::vector<std::string> models;
  std::vector<int> input_lens = {512, 2048};
  std::vector<int> batches = {1, 16, 32};
  int context_len = 128;  // tokens that each sequence holds when decoding begins
  int output_len = 32;    // decode steps of a round
  int rounds = 3;
  bool json = false;  // one object a line
};

// Prints one line a pass: medians with least and most over the rounds, the fraction of the rate
// that the measured limits allow, and the ratio to the better peer:
//   prefill 512 | hocket 1408 (1390-1420) 0.67 | llama.cpp 590 (571-601) 0.28
//               | 2.39 x llama.cpp (2.31-2.45)
// Then prints the most memory that each held, relative to the size of the peer's file. All programs
// run as children, one after the other, so that none takes memory or cores from another. hocket's
// child inherits variables HOCKET_*. Returns the exit status: that of the error if there was one,
// else 0.
int bench_peers(const BenchPeersOptions& options);

}  // namespace hocket
