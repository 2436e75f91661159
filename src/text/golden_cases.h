// Compares this room with reference outputs of Hugging Face, for tests and `hocket check`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct GoldenLine {
  std::string name;  // "tokenizers/qwen2 encode"
  int cases = 0;
  int failed = 0;
  std::string first_failure;  // which case, what was wanted, what came; empty if none failed
};

// `dir` holds one folder a tokenizer: tokenizer.json, tokenizer_config.json, reference.json.
// Errors: io where the folder or a reference cannot be read; bad_tokenizer.
Result<std::vector<GoldenLine>> check_tokenizer_golden(const std::filesystem::path& dir);
// `dir` holds NAME.jinja and reference.json. One line a template.
Result<std::vector<GoldenLine>> check_chat_golden(const std::filesystem::path& dir);

}  // namespace hocket
