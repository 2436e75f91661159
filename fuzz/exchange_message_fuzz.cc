// Fuzzes messages of dispatch and combine. The parsed rows lie inside the message, and the counts
// of rows agree with the listed experts, since the receiver sorts rows by them without more checks.
#include <array>
#include <vector>

#include "compute/moe/exchange_message.h"

using namespace hocket;

namespace {

constexpr int kExperts = 6;

// Checks the properties on which dispatch_wait() relies, and reads the ids that it would read.
void use(const ArrivedRows& rows, const MessageFormat& format, std::span<const std::byte> message) {
  HOCKET_CHECK(rows.num_rows >= 0 && rows.num_rows <= format.max_rows);
  HOCKET_CHECK(rows.row(rows.num_rows) == message.data() + message.size());
  int64_t counted = 0;
  for (const uint32_t count : rows.counts) counted += count;
  if (format.layout == RowLayout::per_expert) {
    HOCKET_CHECK(counted == rows.num_rows);
    return;
  }
  std::array<uint32_t, kExperts> listed{};
  for (int64_t row = 0; row < rows.num_rows; ++row)
    for (int s = 0; s < format.top_k; ++s)
      if (const int32_t id = rows.ids.row(row)[s]; id >= 0) {
        HOCKET_CHECK(id < format.num_experts);
        ++listed[id];
      }
  for (int e = 0; e < kExperts; ++e) HOCKET_CHECK(listed[e] == rows.counts[e]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::byte> slot(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  const std::span<const std::byte> message(slot);
  for (const RowLayout layout : {RowLayout::per_rank, RowLayout::per_expert}) {
    MessageFormat format = {
        .layout = layout, .num_experts = kExperts, .top_k = 3, .max_rows = 8, .row_bytes = 64};
    if (const auto rows = read_dispatch(message, format, 1)) use(*rows, format, message);
    format.num_experts = 0;
    if (const auto rows = read_combine(message, format, 2, 1))
      HOCKET_CHECK(*rows + 2 * format.row_bytes == message.data() + message.size());
  }
  return 0;
}
