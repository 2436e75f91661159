// Records a timeline of some steps of the ranks of this process: operations, waits and messages of
// each rank, in a file that Perfetto and chrome://tracing open and `hocket trace` prints.
//
//   http      start() ............................ stop(), or num_steps are noted
//   engine*        note() note() note() note()       (copies the ledger's spans; never waits)
//   profile                                    '-> writes the file, ends
//
// start() allocates the memory, at most kMaxSpans per rank; steps beyond that are counted and left
// out. While no profile runs, note() is one load.
// Source: docs/contracts/overlap.md, "Ledger".
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "compute/overlap/ledger.h"

namespace hocket {

class Profiler {
 public:
  struct Options {
    // The ranks of this process are [first_rank, first_rank + num_here) of num_ranks.
    int first_rank = 0, num_here = 1, num_ranks = 1;
    std::string model;                   // written into the file
    const OrderTable* orders = nullptr;  // names plans; outlives it; null: plans are numbers
    size_t spans_per_step = 0;           // Ledger::max_spans
    Duration patience = std::chrono::seconds(5);  // stop() waits this long for the file
  };
  explicit Profiler(Options options);
  ~Profiler();

  static constexpr int kMaxSteps = 10'000;
  static constexpr size_t kMaxSpans = size_t{1} << 20;  // per rank
  static std::string fresh_id();                        // made from the time

  struct Start {
    std::string dir;                     // made if it is missing
    std::string id;                      // prefix of the file names; empty: the time
    int num_steps = 0;                   // 1 .. kMaxSteps; 0: until stop(), or memory is used up
    std::optional<uint64_t> start_step;  // first step, as the ranks count; if over: the next one
  };
  struct Status {
    bool running = false;
    int num_steps = 0;  // steps noted so far by the rank that has fewest
    std::string file;   // file of this profile, or of the last; empty: none yet
    bool is_written = false;
    std::string error;  // reason if the last file was not written
  };
  // Starts a profile. Errors: invalid_request (one runs already, bad numbers), io (the folder
  // cannot be written to). Thread: any.
  Result<Status> start(const Start& start);
  // Ends the profile and waits until the file is written. Errors: invalid_request (none runs), io;
  // timed_out if the disk is slow and the file is still being written. Thread: any.
  Result<Status> stop();
  Status status() const;  // Thread: any.

  // Copies a step of `rank` after ledger.end_step(), and sets whether the ledger keeps spans of
  // the next step. Allocates nothing. Thread: the one that computes.
  void note(int rank, Ledger& ledger);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::atomic<bool> is_on_{false};
};

}  // namespace hocket
