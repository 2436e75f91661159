#include "server/reports/grammar_metrics.h"

namespace hocket {

void add_grammars(MetricSnapshot& out, const GrammarStats& grammars) {
  out.counters<GrammarCounters>(kGrammarCounters, grammars);
  out.gauge("grammar_cache_entries", "Grammars that are kept compiled", grammars.num_cached);
  out.gauge("grammar_answer_bytes", "Memory that grammars of answers under way hold",
            static_cast<double>(grammars.answer_bytes));
  out.gauge("grammar_vocabulary_seconds", "Time it took to make the trie of tokens",
            grammars.vocabulary_seconds);
}

}  // namespace hocket
