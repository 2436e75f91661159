// Memory of the exchange of rows between ranks that share the experts: lists of what leaves and of
// what came. Sized for the worst that the limits of a step allow, all rows of all ranks to the
// experts here, so that nothing can be too long at run time.
//
// Both halves use one region, for a rank's halves together never have more than max_rows rows.
// Where rows leave, those of a half, and of each part of it, begin where its rows do; where they
// come, half 0 counts from the front and half 1 from the back. Rows of parts that came stand behind
// each other in the sequence in which they were taken; lists are those of the part in hand:
//
//   leaving   | half 0: begin .. | half 1: begin .. |
//   come      | half 0: first part, second, .. |       | .. , second, first part: half 1 |
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "compute/tensor/buffer.h"

namespace hocket {

// num_ranks 0: all experts are here and nothing is exchanged. The limits of a step's rows are those
// of every rank.
struct ExchangeLimits {
  int num_ranks = 0;
  int rank_experts = 0;      // of the rank that holds most
  int max_slotted_rows = 0;  // of a step whose rows travel once for every expert
  int max_parts = 1;         // messages that the rows of a half may travel in
};

struct ExchangeBuffers {
  // What the sizes follow from.
  struct Shape {
    ExchangeLimits limits;
    DType dtype = DType::bf16;  // of a row that leaves, and its columns
    int64_t row_columns = 0;
    int max_rows = 0, num_experts = 0, top_k = 0;

    int ranks_a_row() const { return std::min(limits.num_ranks, top_k); }
    int experts_a_row() const { return std::min(limits.rank_experts, top_k); }  // on one rank
    int64_t sent_rows() const {
      return std::max(int64_t{max_rows} * ranks_a_row(), int64_t{limits.max_slotted_rows} * top_k);
    }
    int64_t arriving_rows() const { return int64_t{limits.num_ranks} * max_rows; }
    int64_t expert_rows() const { return arriving_rows() * experts_a_row(); }
  };
  void lay_out(const Shape& of, Layout& layout);

  Shape shape;
  // Leaving, by part and rank of destination. One set of heads for each part of a half.
  MatrixView sent;               // [sent_rows, row_columns]
  int32_t* sent_from = nullptr;  // [sent_rows] row of the half
  View<int32_t> sent_ids;        // [max_rows * ranks_a_row, k] local experts, -1 elsewhere
  View<float> sent_weights;      // likewise
  View<int32_t> sent_offsets;    // [2 * max_parts, experts + ranks + 1]
  View<std::byte> heads;         // [2 * max_parts * ranks, head of a combine, head of a dispatch]
  // Come, by rank of source.
  const std::byte** sources = nullptr;  // [expert_rows] where each expert row comes from
  View<int32_t> ids, position;   // [arriving_rows, k] local experts, their rows; -1 elsewhere
  View<float> weights;           // likewise
  int32_t* first_sum = nullptr;  // [arriving_rows] first partial sum of each
  View<int32_t> segments;        // [2, rank_experts * ranks + 1] by expert, then source
  View<int32_t> expert_offsets;  // [2, rank_experts + 1]
  const std::byte** results = nullptr;  // [max_rows * k] where each slot's result stands

  // `count` of `capacity` neighbours for a half, from the front or the back, behind `taken` others.
  static int64_t region_begin(int half, int64_t capacity, int64_t taken, int64_t count) {
    return half == 0 ? taken : capacity - taken - count;
  }
};

// What precedes the rows of a message: a fixed head, and for dispatch the count of each expert.
inline constexpr int64_t kMessageHeadBytes = 64;
constexpr int64_t dispatch_head_bytes(int rank_experts) {
  return kMessageHeadBytes + round_up(rank_experts * int64_t{sizeof(uint32_t)}, 64);
}

}  // namespace hocket
