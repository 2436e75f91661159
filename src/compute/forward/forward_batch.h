// One step's rows as the compute side sees them: no requests, only tokens, positions and pages.
// engine/prepare fills it again for each step. It allocates nothing after reserve() was called with
// the limits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/delta_state.h"
#include "compute/kernels/kv_layout.h"
#include "compute/kv/page_pool.h"
#include "core/forward_mode.h"

namespace hocket {

struct ForwardBatch {
  ForwardMode mode = ForwardMode::idle;
  // These have one entry per row; rows of a sequence are neighbours.
  std::vector<TokenId> ids;
  std::vector<int32_t> positions;
  std::vector<KvSlot> slots;
  // The sequences: which rows attend to which pages. Spans point into page lists that live until
  // the step is committed.
  std::vector<AttentionSequence> sequences;
  // Window layers have pages of their own, so these are their slots and page lists. If both are
  // empty, window layers use pages of the same numbers as the others.
  std::vector<KvSlot> window_slots;
  std::vector<std::span<const PageId>> window_pages;  // one for each of `sequences`
  // For models with delta nets: the same sequences, each once, and the states that they point to.
  std::vector<DeltaSequence> delta;
  std::vector<StateSlot> state_slots;
  // The rows whose logits are wanted, in the sequence of the logits.
  std::vector<int32_t> output_rows;
  // Pages that get their first token in this step, and page copies to make first.
  std::vector<PageId> fresh_pages;
  std::vector<PagePair> copies;
  std::vector<PageId> fresh_window_pages;  // the same of window layers
  std::vector<PagePair> window_copies;
  // If set, the rows were sorted for two halves: the first half ends at one of these borders
  // between rows. The rows before and behind them are answers', which stay together.
  struct Borders {
    int first = 0, last = 0;  // number of rows before each
  };
  std::optional<Borders> half_borders;

  int num_rows() const { return static_cast<int>(ids.size()); }
  void clear() {
    mode = ForwardMode::idle;
    half_borders.reset();
    ids.clear(), positions.clear(), slots.clear(), sequences.clear();
    delta.clear(), state_slots.clear();
    window_slots.clear(), window_pages.clear();
    output_rows.clear(), fresh_pages.clear(), copies.clear();
    fresh_window_pages.clear(), window_copies.clear();
  }
  void reserve(int max_rows, int max_sequences) {
    ids.reserve(max_rows), positions.reserve(max_rows), slots.reserve(max_rows);
    sequences.reserve(max_sequences), delta.reserve(max_sequences);
    state_slots.reserve(kMaxStateSlots * max_sequences);
    output_rows.reserve(max_rows);
    fresh_pages.reserve(max_rows), copies.reserve(max_sequences);
    window_slots.reserve(max_rows), window_pages.reserve(max_sequences);
    fresh_window_pages.reserve(max_rows), window_copies.reserve(max_sequences);
  }
};

}  // namespace hocket
