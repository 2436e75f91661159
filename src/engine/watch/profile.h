// A timeline of some steps of the ranks of this process, as a file that Perfetto and
// chrome://tracing open and `hocket trace` prints: operations, waits and messages of each rank.
//
//   http      start() ............................ stop(), or so many steps are noted
//   engine*        note() note() note() note()       (copies what the ledger kept; never waits)
//   profile                                    '-> writes the file, ends
//
// Memory is taken at start(), at most kMostSpans a rank; what is over that is counted and left out.
// While nobody profiles, note() is one load.
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
    // The ranks of this process: [first_rank, first_rank + num_here) of num_ranks.
    int first_rank = 0, num_here = 1, num_ranks = 1;
    std::string model;                            // a word for the file
    const OrderTable* orders = nullptr;           // for names of plans; outlives it; null: numbers
    size_t spans_per_step = 0;                    // Ledger::most_spans
    Duration patience = std::chrono::seconds(5);  // of stop(), for the file
  };
  explicit Profiler(Options options);
  ~Profiler();

  static constexpr int kMostSteps = 10'000;
  static constexpr size_t kMostSpans = size_t{1} << 20;  // of a rank
  static std::string fresh_id();                         // the time

  struct Start {
    std::string dir;                     // made if it is not there
    std::string id;                      // begins the names of files; empty: the time
    int num_steps = 0;                   // 1 .. kMostSteps; 0: until stop(), or memory is used up
    std::optional<uint64_t> start_step;  // of the agreement's count; earlier ones: the next step
  };
  struct Status {
    bool running = false;
    int num_steps = 0;  // noted, of the rank that has fewest
    std::string file;   // of the profile that runs, else of the last one; empty: there was none
    bool is_written = false;
    std::string error;  // why the last one was not written
  };
  // Errors: invalid_request (one runs already, bad numbers), io (nothing can be written there).
  // Thread: any.
  Result<Status> start(const Start& start);
  // Ends it and waits until the file is written. Errors: invalid_request (none runs), io;
  // timed_out, where a disk is slow: the file is still being written. Thread: any.
  Result<Status> stop();
  Status status() const;  // Thread: any.

  // After ledger.end_step() of a step of `rank`; also tells the ledger whether to keep spans of the
  // next. Allocates nothing.   Thread: the rank's engine.
  void note(int rank, Ledger& ledger);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::atomic<bool> is_on_{false};
};

}  // namespace hocket
