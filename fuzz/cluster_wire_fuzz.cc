// Fuzzes frames between ranks. Bytes are refused with an error message, or they are exactly the
// frame that this code would write, since each message has only one encoding.
#include <string>
#include <string_view>

#include "base/check.h"
#include "cluster/wire.h"

using namespace hocket;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto length = frame_length(bytes, kMaxFrameBytes);
  if (!length) {
    HOCKET_CHECK(!length.error().message.empty());
    return 0;
  }
  if (!length->has_value() || **length > bytes.size() - 4) return 0;
  const std::string_view frame = bytes.substr(4, **length);
  const auto message = parse_frame(frame);
  if (!message) {
    HOCKET_CHECK(!message.error().message.empty());
    return 0;
  }
  std::string again;
  append_frame(again, *message);
  HOCKET_CHECK(std::string_view(again).substr(4) == frame);
  return 0;
}
