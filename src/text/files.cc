#include "text/files.h"

#include <fstream>
#include <iterator>

namespace hocket {

Result<std::string> read_file(const std::filesystem::path& file, ErrorCode code) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) return fail(code, "cannot read {}", file.string());
  return text;
}

}  // namespace hocket
