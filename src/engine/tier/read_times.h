// The times that reading pages and computing their tokens are predicted to take, from the measured
// speeds of sources and of prompts: pages are read where that is faster.
// Owner: PagePrefetch. Thread: engine.
#pragma once

#include <optional>

#include "base/clock.h"
#include "engine/pages/page_reader.h"
#include "engine/stats/cache_tier_stats.h"
#include "engine/tier/prompt_speed.h"

namespace hocket {

class ReadTimes {
 public:
  struct Options {
    double row_seconds = 0;  // the time of a prompt's row as measured before; 0: not known
    int page_tokens = 0;
    int64_t page_bytes = 0, state_bytes = 0;
  };
  // `reader` outlives it.
  ReadTimes(const Options& options, const PageReader& reader)
      : options_(options), reader_(reader), speed_(options.row_seconds) {}

  // Notes a step with that many rows. has_prompts: some of them were of prompts.
  void note_step(int num_rows, Duration took, bool has_prompts) {
    last_step_ = took;
    if (has_prompts) speed_.note(num_rows, took);
  }
  // Returns true if the speed of prompts is known.
  bool knows_speed() const { return speed_.is_known(); }
  // Returns the time to compute that many tokens; SGLang's limit of a wait while the speed of
  // prompts is not known.
  Duration to_compute(int num_tokens) const;
  // Returns true if a prompt that lacks that many tokens of whole pages is to wait for them. It
  // does from CacheTierOptions::kMinTokens tokens on, unless why_not_read() names a reason. With
  // fewer it does if both speeds are known, and reading takes less time than computing; while
  // requests run, the prompt misses a step, too.
  bool are_worth_reading(int num_tokens, int num_running) const;
  // Returns the reason why pages of a task are not read; nullopt: they are.
  std::optional<UnreadReason> why_not_read(const ReadTask& task, size_t num_pages) const;

 private:
  const Options options_;
  const PageReader& reader_;
  PromptSpeed speed_;
  Duration last_step_{};
};

}  // namespace hocket
