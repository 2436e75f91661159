// Finds the numbers of a key head in the columns that a delta net's projections give. Private
// to the operations.
#pragma once

#include "core/model_config.h"

namespace hocket {

// First columns of a key head. Its value heads are neighbours: `value`, `z`, `b` and `a` have
// values_a_key() of them.
struct DeltaColumns {
  int query = 0, key = 0, value = 0, z = 0;  // columns of DeltaNetCall::x
  int b = 0, a = 0;                          // columns of DeltaNetCall::gates
  // Columns among the channels of the convolution, which are always queries, keys, values of all
  // heads.
  int query_channel = 0, key_channel = 0, value_channel = 0;

  static DeltaColumns of(const DeltaNetConfig& net, int key_head) {
    const int group = net.values_a_key(), values = group * net.value_dim;
    DeltaColumns at;
    at.query_channel = key_head * net.key_dim;
    at.key_channel = net.key_columns() + at.query_channel;
    at.value_channel = 2 * net.key_columns() + key_head * values;
    if (net.grouped) {
      at.query = key_head * 2 * (net.key_dim + values);
      at.key = at.query + net.key_dim;
      at.value = at.key + net.key_dim;
      at.z = at.value + values;
      at.b = key_head * 2 * group;
      at.a = at.b + group;
    } else {
      at.query = at.query_channel, at.key = at.key_channel, at.value = at.value_channel;
      at.z = net.channels() + key_head * values;
      at.b = key_head * group;
      at.a = net.num_value_heads + at.b;
    }
    return at;
  }
};

}  // namespace hocket
