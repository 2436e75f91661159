// The memory of gated delta nets, one layer of it. Two kinds of slots, both numbered from 0:
//
//   state slot   a sequence up to a border, a multiple of kDeltaBlock tokens. Requests and the
//                prefix cache share these, so most are only read.
//     states       fp32 [value heads][key_dim][value_dim padded to 16]
//     conv_inputs  fp32 [3][channels]: the last inputs of the convolution before the border
//
//   block slot   the tokens of a running sequence from its last border on, at most kDeltaBlock
//     conv_inputs  fp32 [3 + undone_rows][channels]: the last inputs of the convolution so far, a
//                  ring: the input at a position is in row (position modulo the number of rows)
//     sums         fp32 [value heads][kDeltaBlock]: decays, added up from the border; with
//                  channel_decay [value heads][kDeltaBlock][padded key]
//     base         T [value heads] the state at the border, rounded: a packed weight, n = value,
//                  k = key
//     keys         T [key heads] a packed weight with n = token of the block, k = key
//     values       T [value heads][2 k-blocks of tokens] packed weights with n = value, k = token
//   and with channel_decay, whose keys are T [key heads][kDeltaBlock][padded key]:
//     far          T [key heads] packed weights like keys, one for each panel of the block: the
//                  keys of the panels before it, decayed up to the border between these and the
//                  panel
//
// T is the type of activations. Packed weights are those of packed_weight.h, so the products of
// delta_net.h read all of it in place.
#pragma once

#include <cstdint>
#include <span>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "core/model_config.h"
#include "core/state_slot.h"

namespace hocket {

inline constexpr int kDeltaBlocksOfK = kDeltaBlock / kBlockK;

inline constexpr int kDeltaPanels = kDeltaBlock / kPanelN;

constexpr int delta_border(int position) {
  return position / kDeltaBlock * kDeltaBlock;
}

struct DeltaShape {
  DeltaNetConfig net;
  DType dtype = DType::bf16;  // type of activations
  // Most rows of one call that may be undone, since they are drafts: the next call computes their
  // positions again. No border is behind any of them.
  int undone_rows = 0;

  int key_blocks() const { return static_cast<int>(round_up(net.key_dim, kBlockK) / kBlockK); }
  int padded_key() const { return key_blocks() * kBlockK; }
  int value_panels() const { return static_cast<int>(round_up(net.value_dim, kPanelN) / kPanelN); }
  int padded_value() const { return value_panels() * kPanelN; }

  // Elements of one head.
  int64_t state_elements() const { return int64_t{net.key_dim} * padded_value(); }
  int64_t base_elements() const { return int64_t{value_panels()} * key_blocks() * kTileElements; }
  int64_t keys_elements() const {
    return int64_t{kDeltaBlock / kPanelN} * key_blocks() * kTileElements;
  }
  // Values of the tokens of one k-block, and of the block.
  int64_t value_block_elements() const { return int64_t{value_panels()} * kTileElements; }
  int64_t values_elements() const { return kDeltaBlocksOfK * value_block_elements(); }
  int sums_elements() const { return kDeltaBlock * (net.channel_decay ? padded_key() : 1); }
  int64_t panel_elements() const { return int64_t{key_blocks()} * kTileElements; }
  int64_t far_elements() const {
    return net.channel_decay ? kDeltaPanels * (kDeltaPanels - 1) / 2 * panel_elements() : 0;
  }
  int conv_input_rows() const { return kConvTaps - 1 + undone_rows; }
  int64_t conv_input_bytes(int rows) const {
    return round_up(rows * int64_t{net.channels()} * size_of(DType::f32), 64);
  }
  int64_t state_conv_input_bytes() const { return conv_input_bytes(kConvTaps - 1); }
  // Bytes of one slot, in one layer.
  int64_t state_bytes() const {
    return state_conv_input_bytes() +
           round_up(net.num_value_heads * state_elements() * size_of(DType::f32), 64);
  }
  int64_t block_bytes() const { return far_at() + net.num_key_heads * far_elements() * size(); }

  // Offsets in bytes, inside a block slot.
  int64_t sums_at() const { return conv_input_bytes(conv_input_rows()); }
  int64_t base_at() const {
    return sums_at() + int64_t{net.num_value_heads} * sums_elements() * size_of(DType::f32);
  }
  int64_t values_at() const { return base_at() + net.num_value_heads * base_elements() * size(); }
  int64_t keys_at() const { return values_at() + net.num_value_heads * values_elements() * size(); }
  int64_t far_at() const { return keys_at() + net.num_key_heads * keys_elements() * size(); }

 private:
  int64_t size() const { return size_of(dtype); }
};

// All slots of one layer.
struct DeltaLayer {
  DeltaShape shape;
  std::byte* states = nullptr;  // [state slots][state_bytes]
  std::byte* blocks = nullptr;  // [block slots][block_bytes]

  float* state_conv_inputs(int slot) const { return floats(states + slot * shape.state_bytes()); }
  float* state(int slot, int value_head) const {
    return floats(states + slot * shape.state_bytes() + shape.state_conv_input_bytes()) +
           value_head * shape.state_elements();
  }
  // Returns the inputs at a position, -3 or more.
  float* conv_inputs(int slot, int position) const {
    const int rows = shape.conv_input_rows();
    return floats(block(slot)) + int64_t{(position + rows) % rows} * shape.net.channels();
  }
  float* sums(int slot, int value_head) const {
    return floats(block(slot) + shape.sums_at()) + int64_t{value_head} * shape.sums_elements();
  }
  template <class T>
  T* base(int slot, int value_head) const {
    return at<T>(slot, shape.base_at()) + value_head * shape.base_elements();
  }
  template <class T>
  T* keys(int slot, int key_head) const {
    return at<T>(slot, shape.keys_at()) + key_head * shape.keys_elements();
  }
  // Returns the keys of the panels before `panel`, decayed up to its begin.
  template <class T>
  T* far(int slot, int key_head, int panel) const {
    return at<T>(slot, shape.far_at()) + key_head * shape.far_elements() +
           panel * (panel - 1) / 2 * shape.panel_elements();
  }
  template <class T>
  T* values(int slot, int value_head) const {
    return at<T>(slot, shape.values_at()) + value_head * shape.values_elements();
  }

 private:
  static float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }
  std::byte* block(int slot) const { return blocks + slot * shape.block_bytes(); }
  template <class T>
  T* at(int slot, int64_t offset) const {
    HOCKET_CHECK(shape.dtype == dtype_of<T>);
    return reinterpret_cast<T*>(block(slot) + offset);
  }
};

// Rows [row_begin, row_begin + num_rows) of a batch are the tokens from first_position on of one
// sequence. A sequence is in a call once.
struct DeltaSequence {
  int row_begin = 0;
  int num_rows = 0;
  int first_position = 0;
  int block = -1;  // its block slot
  // The border, among the rows, at which the block slot is filled from the state there (at position
  // 0: with zeros). -1: the slot has the tokens before the rows already. A request's first rows
  // have such a border.
  int load_state_at = -1;
  // By rising `end`: the state before the first row, if there is one, and those that the rows make.
  // The state at each border is computed from the one before it, in place if both have one slot.
  std::span<const StateSlot> states;

  // Returns the slot of the state at a border.
  int slot_at(int border) const {
    for (const StateSlot& state : states)
      if (border <= state.end) return state.slot;
    HOCKET_CHECK(false);
    return -1;
  }
};

}  // namespace hocket
