// The memory for exchanging rows between ranks that share the experts: lists of leaving and of
// arrived rows. It is sized for the worst case that a step's limits allow (all rows of all ranks go
// to the experts here), so no list can be too long.
//
// Both halves share one region, because a rank's halves together have at most max_rows rows. In the
// lists of leaving rows, a half and each of its parts begin at the place of their first row. In the
// lists of arrived rows, half 0 counts from the front and half 1 from the back. Rows of arrived
// parts stand one after the other in the sequence in which they were taken; the other lists hold
// the part that was taken last:
//
//   leaving   | half 0: begin .. | half 1: begin .. |
//   arrived   | half 0: first part, second, .. |       | .. , second, first part: half 1 |
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "compute/tensor/buffer.h"

namespace hocket {

// The limits of an exchange, the same on every rank; max_decode_rows limits each rank's rows.
// num_ranks 0: all experts are here and nothing is exchanged.
struct ExchangeLimits {
  int num_ranks = 0;
  int rank_experts = 0;     // places for experts of the rank that holds most
  int max_decode_rows = 0;  // the most rows of a rank in a step without prompts
  int max_parts = 1;        // the most messages that the rows of a half travel in, each way
};

struct ExchangeBuffers {
  // The numbers that all sizes follow from.
  struct Shape {
    ExchangeLimits limits;
    DType dtype = DType::bf16;  // type of a leaving row; row_columns: its columns
    int64_t row_columns = 0;
    int max_rows = 0, num_experts = 0, top_k = 0;

    int ranks_per_row() const { return std::min(limits.num_ranks, top_k); }
    // Experts of a row on one rank.
    int experts_per_row() const { return std::min(limits.rank_experts, top_k); }
    int64_t sent_rows() const {
      return std::max(int64_t{max_rows} * ranks_per_row(), int64_t{limits.max_decode_rows} * top_k);
    }
    int64_t arriving_rows() const { return int64_t{limits.num_ranks} * max_rows; }
    // A step without prompts lists each row once for every wave.
    int64_t listed_rows() const {
      return limits.num_ranks *
             std::max(int64_t{max_rows}, int64_t{limits.max_parts} * limits.max_decode_rows);
    }
    int num_places() const { return std::max(num_experts, limits.num_ranks * limits.rank_experts); }
    int64_t expert_rows() const { return arriving_rows() * experts_per_row(); }
  };
  void lay_out(const Shape& of, Layout& layout);

  Shape shape;
  // The leaving rows, by part and rank of destination. Each part of a half has its own heads.
  MatrixView sent;               // [sent_rows, row_columns]
  int32_t* sent_from = nullptr;  // [sent_rows] row of the half
  View<int32_t> places;          // [max_rows, k] place that computes each slot (placement.h)
  View<int32_t> sent_ids;        // [max_rows * ranks_per_row, k] as in a message
  View<float> sent_weights;      // [max_rows * ranks_per_row, k]
  View<int32_t> sent_offsets;    // [2 * max_parts, places + ranks + 1]
  View<std::byte> heads;         // [2 * max_parts * ranks, head of a combine, head of a dispatch]
  // The arrived rows, by rank of source.
  const std::byte** sources = nullptr;  // [expert_rows] source of each expert row
  View<int32_t> ids;                    // [listed_rows, k] experts of sums made here, -1 elsewhere
  int32_t* first_sum = nullptr;         // [listed_rows] number of the first sum of each
  // [arriving_rows, k] expert rows of the experts that are computed here, -1 elsewhere; and the
  // nodes that their sums belong to.
  View<int32_t> position, nodes;
  View<float> weights;  // [arriving_rows, k]
  // [2, max_parts * rank_experts * ranks + 1] begins of rows, by wave, expert, source.
  View<int32_t> segments;
  View<int32_t> expert_offsets;         // [2, max_parts * (rank_experts + 1)]
  const std::byte** results = nullptr;  // [max_rows * k] address of each slot's result

  // Returns the begin of `count` places for a half in a region of `capacity`: from the front or the
  // back, behind `taken` places that the half has already.
  static int64_t region_begin(int half, int64_t capacity, int64_t taken, int64_t count) {
    return half == 0 ? taken : capacity - taken - count;
  }
};

// The bytes before the rows of a message: a fixed head, and in a dispatch the count of each expert.
inline constexpr int64_t kMessageHeadBytes = 64;
constexpr int64_t dispatch_head_bytes(int rank_experts) {
  return kMessageHeadBytes + round_up(rank_experts * int64_t{sizeof(uint32_t)}, 64);
}

}  // namespace hocket
