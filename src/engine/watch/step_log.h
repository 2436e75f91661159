// The lines users paste and scripts parse, in the words and the order of SGLang's, and the counts
// and the throughput behind them:
//
//   Prefill batch, #new-seq: 2, #new-token: 40, #cached-token: 32, token usage: 0.01,
//   #running-req: 3, #queue-req: 0, #pending-token: 0, cuda graph: False,
//   input throughput (token/s): 9412.50
//
//   Decode batch, #running-req: 3, #token: 96, token usage: 0.01, cuda graph: False,
//   gen throughput (token/s): 812.40, #queue-req: 0
//
// each in one line; of one of several ranks with `, overlap: 61 %` at the end: of the time that its
// messages were under way, the share in which it computed. A step with rows of prompts prints the
// first, every so many-th step with decode rows the second, so a mixed step may print both.
// #new-seq counts prompts with rows in this step, chunks that go on too; #cached-token counts once
// for each time a prompt begins. #running-req of a prefill leaves out the requests of #new-seq; of
// a decode it is the rows. #pending-token: of prompts, after this step. Throughput is over the time
// with work: SGLang's is over the time since the last line, however long nobody asked for anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// Of a step, how long rows were on their way while this rank computed, and while it waited.
struct StepTransfers {
  Duration hidden{}, exposed{};
  bool hidden_is_bound = false;  // an upper bound
};

// Since the start.
struct StepCounts {
  uint64_t num_prefill = 0, num_decode = 0, num_mixed = 0;  // steps
  uint64_t num_idle = 0;        // without rows, because other ranks had some
  uint64_t num_overlapped = 0;  // scheduled while the one before was under way
  // Tokens, those of retracted requests again and again: prompts' that were computed, and that came
  // from the cache; decode rows.
  uint64_t prefill_compute_tokens = 0, prefill_cache_tokens = 0, decode_tokens = 0;
  int num_retracted_lately = 0;  // requests, from the last line but one to the last
};

// Thread: engine.
class StepLog {
 public:
  // decode_interval: steps with decode rows from one line to the next; >= 1.
  // prefix: what its lines begin with; "DP1 EP1 " of one of several ranks.
  explicit StepLog(int decode_interval = 40, std::string prefix = "")
      : decode_interval_(decode_interval), prefix_(std::move(prefix)) {}

  // A step, after its commit(). took: what it computed for; now: at its end. An idle one is counted
  // and else passed over. transfers: of one of several ranks.
  void note(const Batch& batch, const SchedulerStats& stats, TimePoint now, Duration took,
            std::optional<StepTransfers> transfers = {});

  const StepCounts& counts() const { return counts_; }
  uint64_t num_steps() const {
    return counts_.num_prefill + counts_.num_decode + counts_.num_mixed + counts_.num_idle;
  }
  // Tokens a second, over the last second with work; 0 before.
  double gen_throughput() const { return lately_.last; }

 private:
  // Tokens and the time they took, until it is read.
  struct Rate {
    uint64_t tokens = 0;
    double seconds = 0;
    double last = 0;

    void add(uint64_t more_tokens, double more_seconds);
    double take();
  };

  void count(const Batch& batch);
  void line_printed(const SchedulerStats& stats);

  int decode_interval_;
  std::string prefix_;
  int decode_steps_ = 0;  // since the last line
  Rate lately_, since_line_;
  TimePoint last_end_{};                // of the step before; unset after a pause
  StepTransfers transfers_since_line_;  // of steps of answers
  uint64_t retracted_told_ = 0;
  StepCounts counts_;
};

}  // namespace hocket
