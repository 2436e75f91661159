// Fuzzes server-sent events. Written events read back the same, with line ends as \n, wherever the
// bytes are cut, and the reader accepts any bytes.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/http/sse.h"

using namespace hocket;

namespace {

// Replaces \r and \r\n by \n.
std::string with_plain_lines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r')
      out += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n')
      out += '\n';
  }
  return out;
}

std::vector<std::string> read_in_pieces(std::string_view bytes, size_t piece) {
  SseReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += piece)
    for (std::string& event : reader.feed(bytes.substr(at, piece)))
      events.push_back(std::move(event));
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = data[0] % 16 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

  std::string stream;
  std::vector<std::string> sent;
  for (size_t at = 0;;) {  // zero bytes separate the events
    const size_t end = std::min(bytes.find('\0', at), bytes.size());
    append_sse(stream, bytes.substr(at, end - at));
    sent.push_back(with_plain_lines(bytes.substr(at, end - at)));
    if (end == bytes.size()) break;
    at = end + 1;
  }
  HOCKET_CHECK(read_in_pieces(stream, piece) == sent);
  HOCKET_CHECK(read_in_pieces(bytes, piece) == read_in_pieces(bytes, bytes.size() + 1));
  return 0;
}
