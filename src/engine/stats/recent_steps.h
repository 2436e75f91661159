// Keeps the newest steps of the ranks of this process, with all that /start_profile would record of
// them. It is always on, so that a slow step can be looked at afterwards.
//
//   engine*   note() note() note() ...            copies the ledger's spans into the oldest slot
//   any           accounts()   steps()            copy slots out, one at a time
//
// Memory: kSteps slots per rank, of at most kMaxSpans spans; further spans of a step are counted
// and left out. A slot that is being read is skipped, so the engine never waits for a reader.
// Source: docs/contracts/overlap.md, "Ledger".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/stats/trace_file.h"

namespace hocket {

class RecentSteps {
 public:
  static constexpr size_t kSteps = 64;
  static constexpr size_t kMaxSpans = 4096;  // per step

  // The ranks of this process are [first_rank, first_rank + num_here).
  struct Options {
    int first_rank = 0, num_here = 1, num_ranks = 1;
    std::string model;
    const OrderTable* orders = nullptr;  // names plans; outlives it; null: plans are numbers
    size_t spans_per_step = 0;           // Ledger::max_spans
  };
  explicit RecentSteps(Options options);
  ~RecentSteps();

  // Copies a step after ledger.end_step(), and makes the ledger keep the spans of the next step
  // too. A step without a pass is skipped. Allocates nothing. Thread: the one that computes.
  void note(int rank, Ledger& ledger);

  struct Step {
    uint64_t number = 0;      // agreed by the ranks, or counted here if there is one rank
    StepAccount account;      // account.step is `number`
    std::string plan;         // name of the plan
    size_t num_left_out = 0;  // number of spans
    std::vector<LedgerSpan> spans;
  };
  struct RankSteps {
    int rank = 0;
    std::vector<Step> steps;  // oldest first
  };
  // Returns all steps without their spans. Thread: any, as for all below.
  std::vector<RankSteps> accounts() const;
  // Returns the steps of that number with spans, of every rank that still has it; nullopt: all
  // steps.
  std::vector<RankSteps> steps(std::optional<uint64_t> number) const;
  // Returns all steps as one timeline for Perfetto. Errors: io, if there is no memory for it.
  Result<std::string> trace() const;

 private:
  struct Tape;
  enum class Content : uint8_t { accounts, spans };
  std::vector<RankSteps> copy(Content content, std::optional<uint64_t> number) const;

  const Options options_;
  std::vector<std::unique_ptr<Tape>> tapes_;
};

}  // namespace hocket
