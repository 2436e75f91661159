#include "text/tokens/files.h"

#include <fstream>

namespace hocket {

// The largest known tokenizer.json has some 40 MB.
constexpr size_t kFileBytesMax = 256 << 20;

Result<std::string> read_file(const std::filesystem::path& file, ErrorCode code) {
  std::ifstream in(file, std::ios::binary);
  std::string text, block(64 << 10, '\0');
  while (in.read(block.data(), std::ssize(block)), in.gcount() > 0) {
    text.append(block, 0, static_cast<size_t>(in.gcount()));
    if (text.size() > kFileBytesMax)
      return fail(code, "{} is larger than {} MiB", file.string(), kFileBytesMax >> 20);
  }
  if (!in.is_open() || in.bad()) return fail(code, "cannot read {}", file.string());
  return text;
}

}  // namespace hocket
