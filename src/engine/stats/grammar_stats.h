// Counts what the grammars of answers cost. Any thread counts; readers get a copy. A new counter is
// a member and its row, and the code that counts it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/named_counter.h"

namespace hocket {

// Counts since the start, of all ranks of this process.
struct GrammarCounters {
  uint64_t num_compiled = 0, num_failed = 0, num_cancelled = 0, num_cache_hits = 0;
  uint64_t num_too_slow = 0;  // grammars that were moved from the first lane to the second
  double compile_seconds_total = 0;
  // Computed by `masks`; computed by the sampling.
  uint64_t num_masks_ahead = 0, num_masks_late = 0;
  double mask_seconds_total = 0;
};

inline constexpr auto kGrammarCounters = std::to_array<NamedCounter<GrammarCounters>>(
    {{&GrammarCounters::num_compiled, "num_grammars_compiled_total", "Grammars compiled"},
     {&GrammarCounters::num_failed, "num_grammars_failed_total",
      "Grammars of which nothing could be made"},
     {&GrammarCounters::num_cancelled, "num_grammars_cancelled_total",
      "Requests that left before their grammar was looked at"},
     {&GrammarCounters::num_too_slow, "num_grammars_slow_total",
      "Grammars that went to the second thread, for large ones"},
     {&GrammarCounters::num_cache_hits, "grammar_cache_hits_total",
      "Requests whose grammar was compiled before"},
     {&GrammarCounters::compile_seconds_total, "grammar_compile_seconds_total",
      "Time in compiling grammars"},
     {&GrammarCounters::num_masks_ahead, "grammar_masks_ahead_total",
      "Masks computed beside a step"},
     {.value = &GrammarCounters::num_masks_late,
      .name = "grammar_masks_on_demand_total",
      .help = "Masks computed while sampling waited for them",
      .old_name = "grammar_masks_late_total"},
     {&GrammarCounters::mask_seconds_total, "grammar_mask_seconds_total",
      "Time in computing masks"}});
static_assert(names_each_member(kGrammarCounters));

struct GrammarStats : GrammarCounters {
  int num_cached = 0;
  int64_t answer_bytes = 0;       // held by the matchers of answers
  double vocabulary_seconds = 0;  // time to make the trie of tokens; 0: not done yet
};

struct GrammarCounts : AtomicCounts<GrammarCounters> {
  std::atomic<int> num_cached{0};
  std::atomic<int64_t> answer_bytes{0};
  std::atomic<double> vocabulary_seconds{0};

  GrammarStats stats() const {
    GrammarStats copy;
    static_cast<GrammarCounters&>(copy) = read(kGrammarCounters);
    copy.num_cached = num_cached;
    copy.answer_bytes = answer_bytes;
    copy.vocabulary_seconds = vocabulary_seconds;
    return copy;
  }
};

}  // namespace hocket
