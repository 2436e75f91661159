#include "compute/forward/split.h"

#include <algorithm>

#include <cstdlib>

namespace hocket {
namespace {

constexpr int kWhole = 64;  // unit of SplitOptions::share

// Returns the distance of `left` rows of `all` from the first half's share, times kWhole.
int64_t distance(int64_t left, int64_t all, int share) {
  return std::abs(left * kWhole - all * share);
}

// Returns the number of rows before the border of sequences that is nearest to the share, the later
// of two equal ones. The search ends where borders become worse. 0: there is only one sequence.
int balanced_border(const ForwardBatch& batch, int share) {
  const int rows = batch.num_rows();
  int best = 0;
  int64_t nearest = 0;
  for (size_t i = 1; i < batch.sequences.size(); ++i) {
    const int left = batch.sequences[i].row_begin;
    const int64_t off = distance(left, rows, share);
    if (i > 1 && off > nearest) break;
    best = left, nearest = off;
  }
  return best;
}

bool is_balanced(int left, int rows, const SplitOptions& options) {
  const double slack = 0.5 - options.cut_threshold;
  return static_cast<double>(distance(left, rows, options.share)) <= slack * kWhole * rows;
}

// SGLang's rule for prompts ("two chunks"). Where that rule would give a half sequences without
// rows, the cut is on the border before these sequences: a cut between rows can mean nothing else.
int extend_cut(const ForwardBatch& batch, const SplitOptions& options) {
  const int rows = batch.num_rows();
  const int border = balanced_border(batch, options.share);
  if (options.cut_threshold <= 0) return border > 0 ? border : rows;
  if (is_balanced(border, rows, options)) return border;
  const int wanted = rows_by_share(rows, options);
  int num_before = 0;  // sequences that end before the cut
  for (const AttentionSequence& s : batch.sequences)
    num_before += s.row_begin + s.num_rows <= wanted;
  return border > 0 && num_before + 1 > wanted ? border : wanted;
}

// Puts those parts of the sequences that are in a half's rows into its plan, with other pages than
// the sequences' own if `pages` is not empty.
void cut_sequences(const ForwardBatch& batch, std::span<const std::span<const PageId>> pages,
                   RowRange rows, AttentionPlan& plan) {
  plan.sequences.clear();
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    //  sequence   |-----------------|
    //  half            |------------------|      begin .. end: its rows in this half
    const AttentionSequence& sequence = batch.sequences[s];
    const int begin = std::max(sequence.row_begin, rows.begin);
    const int end = std::min(sequence.row_begin + sequence.num_rows, rows.begin + rows.count);
    if (begin >= end) continue;
    plan.sequences.push_back(
        {.row_begin = begin - rows.begin,
         .num_rows = end - begin,
         .first_position = sequence.first_position + (begin - sequence.row_begin),
         .form = sequence.form,
         .pages = pages.empty() ? sequence.pages : pages[s]});
  }
}

}  // namespace

int nearest_multiple(int wanted, int tile, int rows) {
  const int below = wanted / tile * tile, above = below + tile;
  if (below == 0 && above >= rows) return wanted;
  if (below == 0) return above;
  return above >= rows || wanted - below <= above - wanted ? below : above;
}

int rows_by_share(int rows, const SplitOptions& options) {
  const int wanted = std::clamp(rows * options.share / kWhole, 1, rows - 1);
  return nearest_multiple(wanted, options.row_tile, rows);
}

SplitRule split_for(const ForwardBatch& batch, const SplitOptions& options) {
  const int rows = batch.num_rows();
  if (rows < 2) return {rows};
  const bool answers = batch.mode == ForwardMode::decode;
  const int cut = answers ? rows_by_share(rows, options) : extend_cut(batch, options);
  if (!batch.half_borders) return {cut};
  return {std::clamp(cut, batch.half_borders->first, batch.half_borders->last)};
}

void split_batch(const ForwardBatch& batch, SplitRule rule, const PlannedLayers& layers,
                 const PlannedLayers* windows, std::span<Half> halves) {
  const int num_rows = batch.num_rows();
  const int cut = halves.size() == 1 ? num_rows : std::clamp(rule.first_rows, 0, num_rows);
  const bool apart = !batch.window_slots.empty();
  for (size_t i = 0; i < halves.size(); ++i) {
    Half& half = halves[i];
    half.index = static_cast<int>(i);
    half.rows = i == 0 ? RowRange{0, cut} : RowRange{cut, num_rows - cut};
    const auto own = [&](const std::vector<KvSlot>& slots) {
      return std::span(slots).subspan(half.rows.begin, half.rows.count);
    };
    half.slots = own(batch.slots);
    half.window_slots = own(apart ? batch.window_slots : batch.slots);
    cut_sequences(batch, {}, half.rows, half.attention);
    half.attention.build(layers.num_heads, layers.shape);
    if (windows != nullptr) {
      cut_sequences(batch, batch.window_pages, half.rows, half.window_attention);
      half.window_attention.shares_keys = false;
      half.window_attention.build(windows->num_heads, windows->shape);
    }
    half.delta.clear();
    const int half_end = half.rows.begin + half.rows.count;
    for (const DeltaSequence& sequence : batch.delta) {
      const int begin = std::max(sequence.row_begin, half.rows.begin);
      const int end = std::min(sequence.row_begin + sequence.num_rows, half_end);
      if (begin >= end) continue;
      DeltaSequence& part = half.delta.emplace_back(sequence);
      part.row_begin = begin - half.rows.begin;
      part.num_rows = end - begin;
      part.first_position += begin - sequence.row_begin;
    }
  }
}

void reserve_halves(std::span<Half> halves, int max_rows, int max_sequences) {
  for (Half& half : halves) {
    half.delta.reserve(max_sequences);
    half.attention.reserve(max_sequences, max_rows);
    half.window_attention.reserve(max_sequences, max_rows);
  }
}

}  // namespace hocket
