// The tokenizer of a GGUF file, as the files of a Hugging Face folder: its vocabulary, merges and
// chat template, with the pattern that the name of its pre-tokenizer stands for. Source:
// docs/models.md, "GGUF".   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/assumption.h"
#include "gguf/file.h"

namespace hocket {

inline constexpr std::string_view kTokenizerFile = "tokenizer.json";
inline constexpr std::string_view kTokenizerConfigFile = "tokenizer_config.json";

// Errors: bad_tokenizer (lists of different lengths, texts that are not UTF-8, a kind of tokenizer
// or a pre-tokenizer that is not known, by name).
Result<std::string> gguf_tokenizer_json(const GgufFile& file);
// The names of bos and its like, and the chat template. Errors: as above.
Result<std::string> gguf_tokenizer_config_json(const GgufFile& file);
// Returns what gguf_tokenizer_json() takes though the file does not hold it, or holds another
// value.
std::vector<GgufAssumption> gguf_tokenizer_assumptions(const GgufFile& file);

}  // namespace hocket
