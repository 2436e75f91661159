#include "base/text_file.h"

#include <algorithm>
#include <fstream>

namespace hocket {
namespace {

// Catches exceptions, because the library throws for a folder, whatever the stream's exceptions()
// are.
template <class Read>
bool reads(std::istream& from, Read&& read) {
  try {
    read();
    return !from.bad();
  } catch (const std::ios_base::failure&) {
    return false;
  }
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, size_t max_bytes) {
  constexpr size_t kPiece = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  const bool good = file.is_open() && reads(file, [&] {
                      for (size_t before = 0; file && before <= max_bytes; before = text.size()) {
                        const size_t count = std::min(kPiece, max_bytes + 1 - before);
                        text.resize(before + count);
                        file.read(text.data() + before, static_cast<std::streamsize>(count));
                        text.resize(before + static_cast<size_t>(file.gcount()));
                      }
                    });
  if (!good) return fail(ErrorCode::io, "cannot read {}", path);
  if (text.size() > max_bytes)
    return fail(ErrorCode::bad_value, "{} is longer than {} bytes", path, max_bytes);
  return text;
}

Result<bool> next_line(std::istream& from, std::string& line, size_t max_bytes) {
  line.clear();
  bool ended = false;
  const bool good = reads(from, [&] {
    std::streambuf& bytes = *from.rdbuf();
    constexpr int kEnd = std::char_traits<char>::eof();
    for (int c = 0; !ended && line.size() <= max_bytes && (c = bytes.sbumpc()) != kEnd;) {
      ended = c == '\n';
      if (!ended) line += static_cast<char>(c);
    }
  });
  if (!good) return fail(ErrorCode::io, "the file cannot be read");
  if (line.size() > max_bytes)
    return fail(ErrorCode::bad_value, "a line is longer than {} bytes", max_bytes);
  return ended || !line.empty();
}

}  // namespace hocket
