// `hocket bench grammar`: measures the cost of structured output: compiling, masks, and answers
// with a schema compared with free text, by an engine without a server.
#pragma once

#include "core/server_settings.h"

namespace hocket {

struct BenchGrammarOptions {
  ServerSettings settings;  // with a tokenizer_path if the model's folder has no tokenizer
  bool only_masks = false;  // times compiling and masks for the tokenizer; loads no model
  int num_schemas = 200;    // random schemas to compile and to generate a text from
  int rows = 8;             // answers at a time
  int output_len = 128;     // tokens of an answer
  int rounds = 5;           // counted rounds; one more comes before
  bool json = false;        // one object a line
};

// Prints the times of compiling and of masks at p50 and p99. Then prints tokens/s of free text, of
// text by a schema, and of the same with log-probabilities (no forced tokens: each takes a step),
// and the share of masks computed beside a step. Returns the exit status: that of the error if an
// answer failed.
int bench_grammar(const BenchGrammarOptions& options);

}  // namespace hocket
