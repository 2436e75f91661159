#include "compute/forward/split.h"

#include <algorithm>

namespace hocket {

SplitRule even_split(const ForwardBatch& batch) {
  return {(batch.num_rows() + 1) / 2};
}

void split_batch(const ForwardBatch& batch, SplitRule rule, int num_heads, const KvShape& shape,
                 std::span<Half> halves) {
  const int num_rows = batch.num_rows();
  const int cut = halves.size() == 1 ? num_rows : std::clamp(rule.first_rows, 0, num_rows);
  for (size_t i = 0; i < halves.size(); ++i) {
    Half& half = halves[i];
    half.index = static_cast<int>(i);
    half.rows = i == 0 ? RowRange{0, cut} : RowRange{cut, num_rows - cut};
    half.slots = std::span(batch.slots).subspan(half.rows.begin, half.rows.count);
    half.attention.sequences.clear();
    const int half_end = half.rows.begin + half.rows.count;
    for (const AttentionSequence& sequence : batch.sequences) {
      //  sequence   |-----------------|
      //  half            |------------------|      begin .. end: its rows in this half
      const int begin = std::max(sequence.row_begin, half.rows.begin);
      const int end = std::min(sequence.row_begin + sequence.num_rows, half_end);
      if (begin >= end) continue;
      half.attention.sequences.push_back(
          {.row_begin = begin - half.rows.begin,
           .num_rows = end - begin,
           .first_position = sequence.first_position + (begin - sequence.row_begin),
           .role = sequence.role,
           .pages = sequence.pages});
    }
    half.attention.build(num_heads, shape);
  }
}

void reserve_halves(std::span<Half> halves, int max_rows, int max_sequences) {
  for (Half& half : halves) {
    half.attention.sequences.reserve(max_sequences);
    half.attention.reserve(max_sequences, max_rows);
  }
}

}  // namespace hocket
