// What an answer's text must look like, as the request says it: the words between the server, which
// reads them, and the engine, which compiles them (engine/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hocket {

enum class GrammarKind : uint8_t {
  json_schema,  // a JSON schema
  regex,        // of the whole text
  lark,         // Lark as llguidance reads it
};

// Immutable once it is part of a request, which holds it by shared_ptr<const GrammarSpec>
// (SamplingParams::grammar): all its choices share one.
struct GrammarSpec {
  GrammarKind kind = GrammarKind::json_schema;
  std::string text;
  std::string field;  // of the request that asks for it, for errors: "response_format"

  // What is compiled once for all who ask for the same.
  bool same_as(const GrammarSpec& other) const { return kind == other.kind && text == other.text; }
};

// Longer ones are refused.
inline constexpr size_t kGrammarBytesMax = 1 << 20;

}  // namespace hocket
