#include "text/tokens/files.h"

#include <fstream>

#include "gguf/file.h"
#include "gguf/tokenizer_json.h"

namespace hocket {

// The largest known tokenizer.json has some 40 MB.
constexpr size_t kMaxFileBytes = 256 << 20;

Result<std::string> read_file(const std::filesystem::path& file, ErrorCode code) {
  std::ifstream in(file, std::ios::binary);
  std::string text, block(64 << 10, '\0');
  while (in.read(block.data(), std::ssize(block)), in.gcount() > 0) {
    text.append(block, 0, static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxFileBytes)
      return fail(code, "{} is larger than {} MiB", file.string(), kMaxFileBytes >> 20);
  }
  if (!in.is_open() || in.bad()) return fail(code, "cannot read {}", file.string());
  return text;
}

bool has_model_file(const std::filesystem::path& model, std::string_view name) {
  if (!gguf_file_of(model).empty()) return name == kTokenizerFile || name == kTokenizerConfigFile;
  std::error_code ignored;
  return std::filesystem::exists(model / name, ignored);
}

Result<std::string> read_model_file(const std::filesystem::path& model, std::string_view name,
                                    ErrorCode code) {
  const std::filesystem::path gguf = gguf_file_of(model);
  if (gguf.empty()) return read_file(model / name, code);
  HOCKET_TRY(const auto file, GgufFile::open(gguf, GgufExtent::header));
  return name == kTokenizerFile ? gguf_tokenizer_json(*file) : gguf_tokenizer_config_json(*file);
}

}  // namespace hocket
