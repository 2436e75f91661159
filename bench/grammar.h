// `hocket bench grammar`: what structured output costs: compiling, masks, and answers with a schema
// beside free text, by an engine without a server.
#pragma once

#include "core/server_settings.h"

namespace hocket {

struct BenchGrammarOptions {
  ServerSettings settings;  // a tokenizer_path of its own where the model has none
  bool only_masks = false;  // of that tokenizer, whatever the model; no answers
  int num_schemas = 200;    // random ones, compiled and walked through
  int rows = 8;             // answers at a time
  int output_len = 128;     // tokens of an answer
  int rounds = 5;           // counted ones, after one that is not
  bool json = false;        // one object a line
};

// Times of compiling and of masks at p50 and p99; then tokens a second of free text, of text by a
// schema, and of that with log-probabilities, for which every token has a step of its own; and how
// many masks were computed beside a step. Returns the exit status: 1 where an answer failed.
int bench_grammar(const BenchGrammarOptions& options);

}  // namespace hocket
