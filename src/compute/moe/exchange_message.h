// What ranks say to each other in dispatch and combine, after the head that AllToAll writes and
// checks. Numbers as the machine holds them; every array begins at a multiple of 4 bytes.
//
//   dispatch   head | uint32 rows of each expert, padded to 64 bytes |
//              counted only: int32 ids [rows][k], float weights [rows][k] |
//              rows: counted in source order, slotted expert by expert, in each in source order
//   combine    head | rows: counted, a partial sum for each row in order and group ascending;
//              slotted, one for each row that came, in their order
//
// A row is round_up(hidden, 32) activations; in a dispatch of int8, numbers and their scale, as
// kernels/quantized_rows.h lays them, quantized_columns(hidden) bytes. Ids are the receiver's own
// numbers of its experts, -1 for one that is elsewhere; slots keep their places in a token's list,
// for sums go by them. Source: docs/contracts/arithmetic.md, "combine groups".
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "compute/forward/exchange_buffers.h"
#include "compute/moe/dispatcher.h"

namespace hocket {

// Of one layer on one rank; what run_experts() takes.
inline constexpr int kMostRankExperts = 1024;

// What a message must look like to be read.
struct MessageFormat {
  ExchangeMode mode = ExchangeMode::counted;
  DType dtype = DType::bf16;  // of rows; one byte of the head
  int num_experts = 0;        // of the receiver of a dispatch; 0 in a combine
  int top_k = 0;
  int most_rows = 0;  // of a dispatch
  int64_t row_bytes = 0;

  // Bytes of a dispatch of so many rows.
  int64_t dispatch_bytes(int64_t num_rows) const;
  int64_t combine_bytes(int64_t num_rows) const { return kMessageHeadBytes + num_rows * row_bytes; }
};

// `to`: kMessageHeadBytes.
void write_head(const MessageFormat& format, int num_rows, std::byte* to);

// A rank's rows for the experts here: a message, or this rank's own rows where they stand.
struct ArrivedRows {
  int num_rows = 0;
  std::span<const uint32_t> counts;  // rows of each expert
  View<const int32_t> ids;           // counted
  View<const float> weights;         // counted
  const std::byte* rows = nullptr;
  int64_t row_bytes = 0;
  const int32_t* index = nullptr;  // row i is number index[i]; null: number i

  const std::byte* row(int64_t i) const {
    return rows + (index == nullptr ? i : index[i]) * row_bytes;
  }
};

// Views into the message. Whatever the bytes are, what is returned keeps within them, and within
// the limits. Errors: lost_rank, naming `peer` and what is wrong.
Result<ArrivedRows> read_dispatch(std::span<const std::byte> message, const MessageFormat& format,
                                  int peer);
// The rows, of which there must be num_rows. Errors: as above.
Result<const std::byte*> read_combine(std::span<const std::byte> message,
                                      const MessageFormat& format, int num_rows, int peer);

}  // namespace hocket
