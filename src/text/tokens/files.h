// Reads the text files of a model whole.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// Errors: `code`, with the path, if the file cannot be read or is larger than 256 MiB.
Result<std::string> read_file(const std::filesystem::path& file, ErrorCode code);

// `model` is a folder, or a GGUF file, whose texts are those of the folder that it was made from
// (gguf/tokenizer_json.h). `name` is that of a file: "tokenizer.json". A GGUF file has
// tokenizer.json and tokenizer_config.json.
bool has_model_file(const std::filesystem::path& model, std::string_view name);
// Errors: as read_file; of a GGUF file those of GgufFile::open and gguf_tokenizer_json.
Result<std::string> read_model_file(const std::filesystem::path& model, std::string_view name,
                                    ErrorCode code);

}  // namespace hocket
