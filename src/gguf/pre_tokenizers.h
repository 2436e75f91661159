// The pre-tokenizers of GGUF files. A file names one by tokenizer.ggml.pre, or by its kind alone,
// and does not hold its patterns. Source: docs/models.md, "GGUF". Private to the room.
// Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/file.h"

namespace hocket {

// The alphabet of the tokens, and the origin of the merges.
enum class GgufSpelling : uint8_t {
  bytes,          // a letter for each byte
  sentencepiece,  // UTF-8 with U+2581 for spaces, and tokens of bytes; merges by scores
  gemma,          // the same; the file lists the merges
};

struct GgufPreTokenizer {
  std::string_view name;
  std::span<const std::string_view> splits;  // one after the other
  bool composes = false;                     // NFC before all
  bool ignore_merges = false;                // a piece that is a token is taken whole
  bool adds_bos = false;                     // unless the file says otherwise
  GgufSpelling spelling = GgufSpelling::bytes;
};

// Errors: bad_tokenizer, if the file names a kind or a pre-tokenizer that is not known.
Result<const GgufPreTokenizer*> find_gguf_pre_tokenizer(const GgufFile& file);

// Returns the name of a byte-level pre-tokenizer that the file gives, or, where it gives none, that
// of its vocabulary, if that is known; else "default".
std::string_view gguf_pre_tokenizer_name(const GgufFile& file);

// Returns an error of the file's tokenizer, with the way out.
std::unexpected<Error> bad_tokenizer(const GgufFile& file, const std::string& what);

}  // namespace hocket
