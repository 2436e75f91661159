// The messages of dispatch and combine, behind the head that AllToAll writes and checks. Numbers
// are in the machine's byte order; every array begins at a multiple of 4 bytes.
//
//   dispatch   head | uint32 rows of each expert, padded to 64 bytes |
//              per rank only: int32 ids [rows][k], float weights [rows][k] |
//              rows: per rank in source order, per expert expert by expert, in each in source order
//   combine    head | rows: per rank, a sum for each row in order and each of its nodes ascending
//              (combine_nodes.h); per expert, one for each row that was received, in their order
//
// A row has round_up(hidden, 32) activations. In a dispatch of int8 it has
// quantized_columns(hidden) bytes, with its scale, as in kernels/quantized_rows.h. Ids are the
// receiver's own numbers of its experts; -1 - e is expert e, which another rank computes, so that
// both ranks find the same nodes (combine_nodes.h). Slots keep their places in a token's list,
// because sums follow that sequence. Source: docs/contracts/arithmetic.md, "combine groups".
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "compute/forward/exchange_buffers.h"
#include "compute/moe/dispatcher.h"

namespace hocket {

// The largest number of experts of one layer on one rank; run_experts() takes as many.
inline constexpr int kMaxRankExperts = 1024;

// The layout in which rows travel; all ranks use the same in a pass.
//   per_rank    A row travels once to every rank that holds one of its experts. Each rank returns
//               one sum for each node of combine groups there, mostly one.
//   per_expert  A row travels once for every expert, and every expert's row is sent back. So all
//               rows of an expert are in one part.
enum class RowLayout : uint8_t { per_rank, per_expert };

// The format that a message must have to be accepted.
struct MessageFormat {
  RowLayout layout = RowLayout::per_rank;
  DType dtype = DType::bf16;  // type of the rows; one byte in the head
  int num_experts = 0;        // experts of the receiver; 0 in a combine
  int top_k = 0;
  int max_rows = 0;  // the most rows of a dispatch
  int64_t row_bytes = 0;
  // [all experts] 1 if only the receiver has the expert: no other rank computes it.
  std::span<const uint8_t> exclusive_experts = {};

  // Returns the bytes of a dispatch with this number of rows.
  int64_t dispatch_bytes(int64_t num_rows) const;
  int64_t combine_bytes(int64_t num_rows) const { return kMessageHeadBytes + num_rows * row_bytes; }
};

// Writes kMessageHeadBytes bytes at `to`.
void write_head(const MessageFormat& format, int num_rows, std::byte* to);

// The rows of one rank for the experts here: views into a message, or into this rank's own rows.
struct ArrivedRows {
  int num_rows = 0;
  std::span<const uint32_t> counts;  // [experts] rows of each
  View<const int32_t> ids;           // only per rank
  View<const float> weights;         // only per rank
  const std::byte* rows = nullptr;
  int64_t row_bytes = 0;
  const int32_t* index = nullptr;  // row i is at place index[i] of `rows`; null: at place i

  const std::byte* row(int64_t i) const {
    return rows + (index == nullptr ? i : index[i]) * row_bytes;
  }
};

// Returns views into the message. For any bytes, all views lie inside the message and the numbers
// inside the limits. Errors: lost_rank, with `peer` and the fault.
Result<ArrivedRows> read_dispatch(std::span<const std::byte> message, const MessageFormat& format,
                                  int peer);
// Returns the rows; there must be num_rows of them. Errors: as above.
Result<const std::byte*> read_combine(std::span<const std::byte> message,
                                      const MessageFormat& format, int num_rows, int peer);

}  // namespace hocket
