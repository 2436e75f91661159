#include "compute/moe/exchange_message.h"

#include <algorithm>
#include <cstring>

namespace hocket {
namespace {

struct Head {
  uint8_t layout = 0;
  uint8_t dtype = 0;
  uint16_t reserved = 0;
  uint32_t num_rows = 0;
  uint32_t num_experts = 0;
  uint32_t row_bytes = 0;
};
static_assert(sizeof(Head) <= kMessageHeadBytes);

std::unexpected<Error> refused(int peer, std::string_view message, std::string_view what) {
  return fail(ErrorCode::lost_rank, "rank {} sent a {} that cannot be read: {}", peer, message,
              what);
}

// Reads the head of a message. Returns the reason as a sentence if it is not as expected.
std::expected<Head, std::string> read_head(std::span<const std::byte> message,
                                           const MessageFormat& format) {
  Head head;
  if (std::ssize(message) < kMessageHeadBytes)
    return std::unexpected(fmt::format("it has {} bytes", message.size()));
  std::memcpy(&head, message.data(), sizeof head);
  if (head.layout != static_cast<uint8_t>(format.layout))
    return std::unexpected("its rows have another layout");
  if (head.dtype != static_cast<uint8_t>(format.dtype) || head.row_bytes != format.row_bytes)
    return std::unexpected(
        fmt::format("its rows, {} bytes of type {}, are not those of this model, {} bytes of type "
                    "{} ({})",
                    head.row_bytes, head.dtype, format.row_bytes, static_cast<int>(format.dtype),
                    dtype_name(format.dtype)));
  if (head.num_experts != static_cast<uint32_t>(format.num_experts))
    return std::unexpected(fmt::format("it is for {} experts", head.num_experts));
  return head;
}

constexpr std::string_view kWrongCounts = "its counts are not those of its rows";

// Returns an empty text if each expert is listed as often as the counts say and each row is for at
// least one expert and for no more than are here; else the reason.
std::string check_lists(const ArrivedRows& rows, const MessageFormat& format) {
  const int most = std::min(format.top_k, format.num_experts);
  uint32_t listed[kMaxRankExperts];
  std::fill_n(listed, format.num_experts, 0);
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    int here = 0;
    for (int s = 0; s < format.top_k; ++s) {
      const int32_t id = rows.ids.row(r)[s];
      if (id >= format.num_experts || -1 - int64_t{id} >= std::ssize(format.exclusive_experts))
        return fmt::format("it names expert {}", id);
      if (id < 0) {
        if (format.exclusive_experts[-1 - id] == 0) continue;
        return fmt::format("it says that another rank computes expert {}", -1 - id);
      }
      ++listed[id];
      ++here;
    }
    if (here == 0 || here > most) return fmt::format("a row is for {} experts", here);
  }
  return std::ranges::equal(rows.counts, std::span(listed, format.num_experts))
             ? ""
             : std::string(kWrongCounts);
}

}  // namespace

int64_t MessageFormat::dispatch_bytes(int64_t num_rows) const {
  const int64_t list_bytes =
      layout == RowLayout::per_rank ? top_k * int64_t{sizeof(int32_t) + sizeof(float)} : 0;
  return dispatch_head_bytes(num_experts) + num_rows * (list_bytes + row_bytes);
}

void write_head(const MessageFormat& format, int num_rows, std::byte* to) {
  const Head head = {.layout = static_cast<uint8_t>(format.layout),
                     .dtype = static_cast<uint8_t>(format.dtype),
                     .num_rows = static_cast<uint32_t>(num_rows),
                     .num_experts = static_cast<uint32_t>(format.num_experts),
                     .row_bytes = static_cast<uint32_t>(format.row_bytes)};
  std::memset(to, 0, kMessageHeadBytes);
  std::memcpy(to, &head, sizeof head);
}

Result<ArrivedRows> read_dispatch(std::span<const std::byte> message, const MessageFormat& format,
                                  int peer) {
  const auto head = read_head(message, format);
  if (!head) return refused(peer, "dispatch", head.error());
  if (head->num_rows > static_cast<uint32_t>(format.max_rows))
    return refused(peer, "dispatch",
                   fmt::format("{} rows, more than {}", head->num_rows, format.max_rows));
  if (std::ssize(message) != format.dispatch_bytes(head->num_rows))
    return refused(peer, "dispatch",
                   fmt::format("{} bytes for {} rows", message.size(), head->num_rows));
  ArrivedRows out;
  out.num_rows = static_cast<int>(head->num_rows);
  out.row_bytes = format.row_bytes;
  out.counts = {reinterpret_cast<const uint32_t*>(message.data() + kMessageHeadBytes),
                static_cast<size_t>(format.num_experts)};
  const std::byte* at = message.data() + dispatch_head_bytes(format.num_experts);
  if (format.layout == RowLayout::per_rank) {
    const int64_t slots = int64_t{out.num_rows} * format.top_k;
    out.ids = {reinterpret_cast<const int32_t*>(at), out.num_rows, format.top_k};
    at += slots * sizeof(int32_t);
    out.weights = {reinterpret_cast<const float*>(at), out.num_rows, format.top_k};
    at += slots * sizeof(float);
    if (std::string wrong = check_lists(out, format); !wrong.empty())
      return refused(peer, "dispatch", wrong);
  } else {
    int64_t counted = 0;
    for (const uint32_t count : out.counts) counted += count;
    if (counted != out.num_rows) return refused(peer, "dispatch", kWrongCounts);
  }
  out.rows = at;
  return out;
}

Result<const std::byte*> read_combine(std::span<const std::byte> message,
                                      const MessageFormat& format, int num_rows, int peer) {
  const auto head = read_head(message, format);
  if (!head) return refused(peer, "combine", head.error());
  if (head->num_rows != static_cast<uint32_t>(num_rows) ||
      std::ssize(message) != format.combine_bytes(num_rows))
    return refused(peer, "combine",
                   fmt::format("{} rows in {} bytes, where {} are due", head->num_rows,
                               message.size(), num_rows));
  return message.data() + kMessageHeadBytes;
}

}  // namespace hocket
