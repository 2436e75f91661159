// The kinds of tokens in GGUF files, and the tokens that end an answer. Private to the room.
// Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gguf/header.h"

namespace hocket {

// Values of tokenizer.ggml.token_type; files hold others, too, which mean nothing.
enum class GgufTokenKind : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  byte = 6,
  other = 0,
};

// Returns the kinds that tokens have in the folder: `numbers` as the file has them, but control for
// texts that end answers, and for marks that converters write as user-defined tokens to make them
// visible. numbers: as many as tokens, or none: all are normal.
std::vector<GgufTokenKind> gguf_token_kinds(std::span<const std::string_view> tokens,
                                            std::span<const double> numbers);

// Returns the tokens below `vocab` that end an answer in some family, by their texts. Many files
// name one of theirs only.
std::vector<int64_t> gguf_ends_by_text(const GgufMetadata& metadata, int64_t vocab);

}  // namespace hocket
