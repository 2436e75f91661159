// `hocket bench overlap`: measures the gain of overlap. It plays the same step in six ways for each
// order and for the planner's choice, and compares the times with a lower bound.
//
//   virtual  (default) the executor over the loopback in virtual time, stage times by formula
//   real     (--real) a model with random weights, with its own dispatcher and ledger; ranks are
//            threads, or processes started by hand; every order is forced in turn, beside the live
//            planner
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct BenchOverlapOptions {
  bool real = false;
  bool search = false;  // virtual: compares with the best of all orders, not only of named ones
  bool quick = false;   // plays virtual and real, few points, within two minutes
  bool json = false;    // one object for each order at each point
  // Empty lists mean those of docs/performance.md.
  std::vector<int> decode_rows, prefill_rows;  // rows of a rank
  std::vector<double> link_gbit;
  // For virtual time.
  std::vector<int> ranks;  // empty: 2 at all points, 4 to 32 at some
  std::string shape;       // a name of overlap_shapes(); empty: all
  // For real runs.
  int num_ranks = 2;
  int rank = -1;          // this process, if ranks are started by hand; -1: ranks are threads
  std::string addr;       // host:port where rank 0 listens; with `rank`
  std::string devices;    // UCX_NET_DEVICES; empty: the device of this process's address
  double own_gbit = 0;    // rate of the real link, with `rank`; 0: unknown
  int rounds = 7;         // rounds of the six runs, interleaved
  int auto_steps = 1000;  // steps that the planner has to find its plan
};

// Prints every point, also those that miss a goal, and the goals at the end.
// Errors: bad_value, io, lost_rank. Returns the exit status: 1 if a point of virtual time misses a
// goal. Goals of real time do not count in it, since they depend on the machine.
Result<int> bench_overlap(const BenchOverlapOptions& options);

}  // namespace hocket
