// Compares this room with reference outputs of Hugging Face, for tests and `hocket check`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

struct GoldenLine {
  std::string name;  // for example "tokenizers/qwen2 encode"
  int cases = 0;
  int failed = 0;
  std::string first_failure;  // the case, the expected and the actual result; empty if none failed
};

// Checks a tokenizer against reference.json in `folder`. Errors: io if it cannot be read.
Result<std::vector<GoldenLine>> check_tokenizer(const Tokenizer& tokenizer,
                                                const std::filesystem::path& folder);
// Checks the tokenizers in `dir`, one folder each: tokenizer.json, tokenizer_config.json,
// reference.json. Errors: io if the folder or a reference cannot be read; bad_tokenizer.
Result<std::vector<GoldenLine>> check_tokenizer_golden(const std::filesystem::path& dir);
// Checks the chat templates NAME.jinja in `dir` against reference.json there; one line a template.
Result<std::vector<GoldenLine>> check_chat_golden(const std::filesystem::path& dir);

}  // namespace hocket
