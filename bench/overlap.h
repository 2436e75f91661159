// `hocket bench overlap`: what overlap gains, honestly: six runs of the same step for each order,
// what the planner chooses, and what no order could beat.
//
//   virtual  (default) the executor over the loopback in virtual time, stage times by formula
//   real     (--real) a model with random weights between processes, its own dispatcher and ledger,
//            every order forced in turn, then the live planner
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct BenchOverlapOptions {
  bool real = false;
  bool quick = false;  // both, few points, within two minutes
  bool json = false;   // one object for each order at each point
  // Empty: those of docs/performance.md.
  std::vector<int> decode_rows, prefill_rows;  // of a rank
  std::vector<double> link_gbit;
  // Of virtual time.
  std::vector<int> ranks;  // empty: 2 at all points, 4 to 32 at some
  std::string shape;       // of overlap_shapes(); empty: all
  // Of real runs.
  int num_ranks = 2;
  int rank = -1;          // of this process, where each is started by hand; -1: all start here
  std::string addr;       // host:port where rank 0 listens; with `rank`
  std::string devices;    // UCX_NET_DEVICES; empty: the one of this process's address
  double own_gbit = 0;    // of the link that is there; 0: one is modelled, at link_gbit
  int rounds = 7;         // of the six runs, interleaved
  int auto_steps = 1000;  // that the planner has to find its plan
};

// Prints every point, also those that miss a goal, and the goals at the end.
// Errors: bad_value, io, lost_rank. Returns the exit status: 0, whatever was missed.
Result<int> bench_overlap(const BenchOverlapOptions& options);

}  // namespace hocket
