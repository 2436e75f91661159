// Finds the texts that a tool's schema allows, as regexes, for families that write texts without
// JSON's quotes. Keeps references into the schema.   Thread: any, one at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/answers/schema_visits.h"

namespace hocket {

inline constexpr int kMaxSchemaDepth = 16;
inline constexpr std::string_view kAnything = "(?s:.*)";

// `exact`: the regex does not allow every text.
struct TextRegex {
  std::string regex;
  bool exact = false;
};

// The spelling of a text of `enum` and `const`.
enum class TextSpelling : uint8_t { plain, entities };  // entities: &lt; for <

class SchemaTexts {
 public:
  using Plain = nlohmann::json;  // finds a key without a search through all keys

  // `root`: the whole schema, to which references lead. Counts what it reads in `visits`.
  SchemaTexts(const Plain& root, TextSpelling spelling, SchemaVisits& visits)
      : root_(root), spelling_(spelling), visits_(visits) {}

  // Follows references from `schema`.
  const Plain& resolved(const Plain& schema) const;
  // Returns nullopt if no regex says what is allowed, or the visits are used up.
  std::optional<TextRegex> regex_of(const Plain& given, int depth = 0) const;
  // Returns true if any text is a valid value: a plain string, or a string beside words (null,
  // true).
  bool is_text_or_word(const Plain& given, int depth = 0) const;

 private:
  std::string written(std::string_view text) const;
  std::optional<TextRegex> one_of(std::span<const Plain> values) const;
  std::optional<TextRegex> alternatives(const Plain& list, std::string_view word, int depth) const;

  const Plain& root_;
  TextSpelling spelling_;
  SchemaVisits& visits_;
};

}  // namespace hocket
