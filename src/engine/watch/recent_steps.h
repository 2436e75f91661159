// The newest steps of the ranks of this process, with what /start_profile would have recorded of
// them. Always on: what was slow a moment ago can still be looked at.
//
//   engine*   note() note() note() ...            copies what the ledger kept into the oldest slot
//   any           accounts()   steps()            copy slots out, one at a time
//
// Memory: kSteps slots a rank, of at most kMostSpans spans; what a step has more is counted and
// left out. A slot that is being read is passed over: the engine waits for nobody.
// Source: docs/contracts/overlap.md, "Ledger".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/watch/trace_file.h"

namespace hocket {

class RecentSteps {
 public:
  static constexpr size_t kSteps = 64;
  static constexpr size_t kMostSpans = 4096;  // of a step

  // The ranks of this process: [first_rank, first_rank + num_here).
  struct Options {
    int first_rank = 0, num_here = 1, num_ranks = 1;
    std::string model;
    const OrderTable* orders = nullptr;  // for names of plans; outlives it; null: numbers
    size_t spans_per_step = 0;           // Ledger::most_spans
  };
  explicit RecentSteps(Options options);
  ~RecentSteps();

  // After ledger.end_step(); the ledger keeps the spans of the next step too. A step without a pass
  // is none. Allocates nothing.   Thread: the rank's engine.
  void note(int rank, Ledger& ledger);

  struct Step {
    uint64_t number = 0;      // as the ranks agreed, or counted here where there is one rank
    StepAccount account;      // its step is that number
    std::string plan;         // its name
    size_t num_left_out = 0;  // spans
    std::vector<LedgerSpan> spans;
  };
  struct OfRank {
    int rank = 0;
    std::vector<Step> steps;  // oldest first
  };
  // Without their spans.   Thread: any, as are all below.
  std::vector<OfRank> accounts() const;
  // With them: one step, of every rank that has it still; none: all.
  std::vector<OfRank> steps(std::optional<uint64_t> number) const;
  // All that are kept, as one timeline for Perfetto. Errors: io, where memory cannot be written to.
  Result<std::string> trace() const;

 private:
  struct Tape;
  enum class With : uint8_t { accounts, spans };
  std::vector<OfRank> copy(With with, std::optional<uint64_t> number) const;

  const Options options_;
  std::vector<std::unique_ptr<Tape>> tapes_;
};

}  // namespace hocket
