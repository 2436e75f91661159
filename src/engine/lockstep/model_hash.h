// Hashes of a model's files, which do not depend on where the files lie or how old they are: of
// texts, which decide how texts become tokens and tokens answers, and of weights.   Thread: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

enum class HashedWeights : uint8_t {
  // 4 KiB of each 16 MiB of a tensor, all of one of at most 64 KiB. It is quick, and finds every
  // other training of a model, but not every other number.
  samples,
  all  // every byte, by all processors of this process
};

// Raise it when equal files get another hash, since hashes are kept.
inline constexpr uint64_t kModelHashLevel = 1;
// Returns 16 hexadecimal digits, or 32 of all bytes; with --load-format dummy those of the seed.
// Errors: model_not_found, bad_safetensors, bad_gguf, io.
Result<std::string> hash_weights(const ModelSettings& model, HashedWeights bytes);
// Returns a hash over the folder's small files (a GGUF file's header) and those of --tokenizer-path
// and --chat-template. Errors: model_not_found, bad_gguf, io.
Result<std::string> hash_texts(const ModelSettings& model);
// Returns the files that may hold weights; none with --load-format dummy. Errors: those of
// hash_weights().
Result<std::vector<std::filesystem::path>> weight_files(const ModelSettings& model);

}  // namespace hocket
