#include "server/reports/grammar_metrics.h"

namespace hocket {

void add_grammars(MetricSnapshot& out, const GrammarStats& grammars) {
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    out.counter(name, help, static_cast<double>(value));
  };
  count("num_grammars_compiled_total", "Grammars compiled", grammars.num_compiled);
  count("num_grammars_failed_total", "Grammars of which nothing could be made",
        grammars.num_failed);
  count("num_grammars_cancelled_total", "Requests that left before their grammar was looked at",
        grammars.num_cancelled);
  count("num_grammars_slow_total", "Grammars that went to the second thread, for large ones",
        grammars.num_too_slow);
  count("grammar_cache_hits_total", "Requests whose grammar was compiled before",
        grammars.num_cache_hits);
  out.gauge("grammar_cache_entries", "Grammars that are kept compiled", grammars.num_cached);
  out.gauge("grammar_answer_bytes", "Memory that grammars of answers under way hold",
            static_cast<double>(grammars.answer_bytes));
  out.counter("grammar_compile_seconds_total", "Time in compiling grammars",
              grammars.compile_seconds_total);
  out.gauge("grammar_vocabulary_seconds", "Time it took to make the trie of tokens",
            grammars.vocabulary_seconds);
  count("grammar_masks_ahead_total", "Masks computed beside a step", grammars.num_masks_ahead);
  count("grammar_masks_late_total", "Masks computed when a token was to be drawn",
        grammars.num_masks_late);
  out.counter("grammar_mask_seconds_total", "Time in computing masks", grammars.mask_seconds_total);
}

}  // namespace hocket
