// Fetches the numbers that the next item of a delta net reads, a part at a time, while an item
// computes: a single token reads much and computes little, so a worker would wait at the start of
// each stream. Private to the operations.   Thread: one worker's.
#pragma once

#include <algorithm>
#include <array>

#include "compute/kernels/delta_columns.h"
#include "compute/kernels/delta_net.h"

namespace hocket {

template <class T>
class DeltaPrefetch {
 public:
  // `index` numbers the items of a call. Nothing is fetched if there is no such item, or if it has
  // more rows than one and so is bound by arithmetic.
  DeltaPrefetch(const DeltaNetCall& call, int index) {
    const DeltaNetConfig& net = call.layer.shape.net;
    const int sequence = index / net.num_key_heads;
    if (sequence >= std::ssize(call.sequences) || call.sequences[sequence].num_rows > 1) return;
    add_channels(call, call.sequences[sequence], DeltaColumns::of(net, index % net.num_key_heads));
    add_block(call.layer, call.sequences[sequence], index % net.num_key_heads);
    lines_a_part_ = lines_ / parts(net) + 1;
  }

  // Fetches the next part.
  void fetch() {
    for (int remaining = lines_a_part_; remaining > 0 && range_ < num_ranges_;) {
      Range& range = ranges_[range_];
      const int count = std::min(remaining, range.lines);
      for (int i = 0; i < count; ++i, range.from += kLine) __builtin_prefetch(range.from, 0, 2);
      remaining -= count;
      range.lines -= count;
      if (range.lines == 0) ++range_;
    }
  }

 private:
  static constexpr int kLine = 64;
  static constexpr int kMaxRanges = 96;  // those of more value heads are not fetched
  struct Range {
    const char* from;
    int lines;
  };

  // Calls of fetch() in an item of one row.
  static int parts(const DeltaNetConfig& net) { return 4 + 3 * net.values_a_key(); }

  void add(const void* from, int64_t bytes) {
    if (num_ranges_ == kMaxRanges) return;
    const int lines = static_cast<int>((bytes + kLine - 1) / kLine);
    ranges_[num_ranges_++] = {static_cast<const char*>(from), lines};
    lines_ += lines;
  }

  // Adds the inputs and taps of the convolution.
  void add_channels(const DeltaNetCall& call, const DeltaSequence& sequence,
                    const DeltaColumns& at) {
    const DeltaNetConfig& net = call.layer.shape.net;
    const float* const x = call.x.row(sequence.row_begin);
    const int values = net.values_a_key() * net.value_dim;
    const auto add_part = [&](int column, int channel, int count) {
      const int64_t bytes = count * int64_t{sizeof(float)};
      add(x + column, bytes);
      for (int tap = 0; tap < kConvTaps; ++tap) {
        add(call.taps.data() + int64_t{tap} * net.channels() + channel, bytes);
        const int position = sequence.first_position - (kConvTaps - 1) + tap;
        add(call.layer.conv_inputs(sequence.block, position) + channel, bytes);
      }
    };
    add_part(at.key, at.key_channel, net.key_dim);
    add_part(at.query, at.query_channel, net.key_dim);
    add_part(at.value, at.value_channel, values);
    add(x + at.z, values * int64_t{sizeof(float)});
  }

  // Adds the base and the tokens of the block.
  void add_block(const DeltaLayer& layer, const DeltaSequence& sequence, int key_head) {
    const DeltaShape& shape = layer.shape;
    const int block = sequence.block, group = shape.net.values_a_key();
    const int token = sequence.first_position - delta_border(sequence.first_position);
    const auto bytes = [](int64_t elements) { return elements * int64_t{sizeof(T)}; };
    if (!shape.net.channel_decay)
      add(layer.keys<T>(block, key_head), (token / kPanelN + 1) * bytes(shape.panel_elements()));
    add(layer.base<T>(block, key_head * group), group * bytes(shape.base_elements()));
    for (int j = 0; j < group; ++j) {
      const T* values = layer.values<T>(block, key_head * group + j);
      if (token >= kBlockK) add(values, bytes(shape.value_block_elements()));
      values += token / kBlockK * shape.value_block_elements();
      for (int panel = 0; panel < shape.value_panels(); ++panel)
        add(values + int64_t{panel} * kTileElements,
            bytes((token % kBlockK + 2) / 2 * 2 * int64_t{kPanelN}));
    }
  }

  std::array<Range, kMaxRanges> ranges_;
  int num_ranges_ = 0, range_ = 0, lines_ = 0, lines_a_part_ = 0;
};

}  // namespace hocket
