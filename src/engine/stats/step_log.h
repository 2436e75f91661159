// The log lines that users paste and scripts parse, in the words and the order of SGLang's, with
// the counts and the throughput in them:
//
//   Prefill batch, #new-seq: 2, #new-token: 40, #cached-token: 32, token usage: 0.01,
//   #running-req: 3, #queue-req: 0, #pending-token: 0, cuda graph: False,
//   input throughput (token/s): 9412.50, cache hit rate: 40.00%
//
//   Decode batch, #running-req: 3, #token: 96, token usage: 0.01, cuda graph: False,
//   gen throughput (token/s): 812.40, #queue-req: 0
//
// Each is one line. Fields that SGLang does not print today are behind its own, so that parsers
// of those still work: the hit rate of all prompt tokens so far and, with several ranks, `,
// overlap: 61 %`: the share of its messages' time on the wire in which the rank computed. A step
// with rows of prompts prints the first, every decode_interval-th step with decode rows the second,
// so a mixed step may print both. #new-seq counts prompts with rows in this step, continued chunks
// too; #cached-token counts once for each time a prompt begins. #running-req of a prefill leaves
// out the requests of #new-seq; of a decode it is the number of rows. #pending-token counts prompt
// tokens left after this step. Throughput of answers is over the time with work, that of a prompt
// over its step; SGLang's are over the time since the last line of the kind, idle or not. With
// drafts since the last line of its kind, `accept len: 2.90, accept rate: 0.75` of these follow
// `token usage`.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "core/named_counter.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// The time that rows of a step were on their way while this rank computed, and while it waited.
struct StepTransfers {
  Duration hidden{}, exposed{};
  bool hidden_is_bound = false;  // true if `hidden` is only an upper bound
};

// Counts since the start. A new one is a member and its row.
struct StepCounters {
  uint64_t num_prefill = 0, num_decode = 0, num_mixed = 0;  // steps
  uint64_t num_idle = 0;        // steps without rows, because other ranks had some
  uint64_t num_overlapped = 0;  // scheduled while the step before was under way
  // Tokens; retracted requests count again. Prompt tokens that were computed; prompt tokens from
  // the cache; decode rows.
  uint64_t prefill_compute_tokens = 0, prefill_cache_tokens = 0, decode_tokens = 0;
};

inline constexpr const char* kStepTokensHelp =
    "Tokens as the steps take them, those of retracted requests again and again";
inline constexpr const char* kStepsHelp =
    "Engine steps: with rows of prompts, of answers, of both; of other ranks only";
inline constexpr auto kStepCounters = std::to_array<NamedCounter<StepCounters>>(
    {{&StepCounters::prefill_compute_tokens, "realtime_tokens_total", kStepTokensHelp, "mode",
      "prefill_compute"},
     {&StepCounters::prefill_cache_tokens, "realtime_tokens_total", kStepTokensHelp, "mode",
      "prefill_cache"},
     {&StepCounters::decode_tokens, "realtime_tokens_total", kStepTokensHelp, "mode", "decode"},
     {&StepCounters::num_prefill, "num_steps_total", kStepsHelp, "mode", "prefill"},
     {&StepCounters::num_decode, "num_steps_total", kStepsHelp, "mode", "decode"},
     {&StepCounters::num_mixed, "num_steps_total", kStepsHelp, "mode", "mixed"},
     {&StepCounters::num_idle, "num_steps_total", kStepsHelp, "mode", "idle"},
     {&StepCounters::num_overlapped, "num_overlapped_steps_total",
      "Engine steps scheduled while another was under way"}});
static_assert(names_each_member(kStepCounters));

struct StepCounts : StepCounters {
  int num_retracted_lately = 0;  // requests retracted between the last two lines
};

// A short text in a buffer of its own, because a step that logs allocates nothing either.
class LogPart {
 public:
  static constexpr size_t kMaxChars = 64;  // the rest is cut off

  template <class... Args>
  void print(fmt::format_string<Args...> text, Args&&... args) {
    const auto end = fmt::format_to_n(chars_.data(), kMaxChars, text, std::forward<Args>(args)...);
    size_ = std::min(kMaxChars, end.size);
  }
  std::string_view view() const { return {chars_.data(), size_}; }

 private:
  std::array<char, kMaxChars> chars_{};
  size_t size_ = 0;
};

// Thread: engine.
class StepLog {
 public:
  // decode_interval: steps with decode rows from one line to the next; >= 1. prefix: begins each
  // line; "DP1 EP1 " if there are several ranks.
  explicit StepLog(int decode_interval = 40, std::string prefix = "")
      : decode_interval_(decode_interval), prefix_(std::move(prefix)) {}

  // Logs and counts a step after its commit(). took: its computing time; now: its end. An idle step
  // is only counted. transfers: set if there are several ranks.
  void note(const Batch& batch, const SchedulerStats& stats, TimePoint now, Duration took,
            std::optional<StepTransfers> transfers = {});

  const StepCounts& counts() const { return counts_; }
  uint64_t num_steps() const {
    return counts_.num_prefill + counts_.num_decode + counts_.num_mixed + counts_.num_idle;
  }
  // Returns tokens per second over the last second with work; 0 before.
  double gen_throughput() const { return lately_.last; }
  // Returns prompt tokens computed per second, over the same second; 0 before.
  double input_throughput() const { return input_lately_.last; }

 private:
  // Adds up tokens and the time they took, until take().
  struct Rate {
    uint64_t tokens = 0;
    double seconds = 0;
    double last = 0;

    void add(uint64_t more_tokens, double more_seconds);
    double take();
  };

  void count(const Batch& batch);
  // Returns the figures of the drafts since the last call; empty if there were none.
  LogPart take_drafts_text(const SchedulerStats& stats);
  void line_printed(const SchedulerStats& stats);

  int decode_interval_;
  std::string prefix_;
  int decode_steps_ = 0;  // since the last line
  Rate lately_, input_lately_, since_line_;
  TimePoint last_end_{};                // end of the step before; unset after a pause
  StepTransfers transfers_since_line_;  // sums over decode steps
  uint64_t retracted_logged_ = 0;
  // Sums of all so far, as of the last line of a decode.
  struct Drafts {
    uint64_t verified = 0, drafts = 0, accepted = 0;
  } drafts_logged_;
  StepCounts counts_;
};

}  // namespace hocket
