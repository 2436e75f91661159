// The form that a request demands of its answer's text. The server reads it, and the engine
// compiles it (engine/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hocket {

enum class GrammarKind : uint8_t {
  json_schema,  // a JSON schema
  regex,        // matches the whole text
  lark,         // Lark as llguidance reads it
};

// Immutable once it is part of a request, which holds it by shared_ptr<const GrammarSpec>
// (SamplingParams::grammar); all choices of the request share it.
struct GrammarSpec {
  GrammarKind kind = GrammarKind::json_schema;
  std::string text;
  std::string field;  // request field that asks for it, for errors: "response_format"
};

// Longer grammars are refused.
inline constexpr size_t kMaxGrammarBytes = 1 << 20;

}  // namespace hocket
