// Starts the compiler of grammars for an engine, or says why it has none. Thread: the one that
// loads the engine.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/grammar/grammar_compiler.h"

namespace hocket {

struct GrammarSetup {
  std::unique_ptr<GrammarCompiler> compiler;  // null: no request can ask for a grammar
  std::string why_none;                       // empty: there is a compiler
};
// Reads the model's configuration. Errors: bad_value (--grammar-backend); those of
// read_hf_config().
Result<GrammarSetup> set_up_grammars(const Engine::Options& options);

}  // namespace hocket
