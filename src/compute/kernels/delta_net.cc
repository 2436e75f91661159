#include "compute/kernels/delta_net.h"

#include "compute/kernels/channel_delta_item.h"
#include "compute/kernels/neighbour_tasks.h"
#include "compute/kernels/reference_operations.h"

namespace hocket {
namespace {

void check_shapes(const DeltaNetCall& call) {
  const DeltaNetConfig& net = call.layer.shape.net;
  HOCKET_CHECK((net.num_key_heads > 0 && net.num_value_heads % net.num_key_heads == 0));
  if (net.channel_decay) HOCKET_CHECK((net.num_value_heads == net.num_key_heads && !net.grouped));
  HOCKET_CHECK(call.x.cols == net.channels() + net.value_columns());
  HOCKET_CHECK(call.gates.rows == call.x.rows && call.gates.cols == net.gate_columns());
  HOCKET_CHECK(std::ssize(call.taps) == int64_t{kConvTaps} * net.channels());
  HOCKET_CHECK(std::ssize(call.a_log) == net.num_value_heads);
  HOCKET_CHECK(std::ssize(call.dt_bias) == net.gate_columns() - net.num_value_heads);
  HOCKET_CHECK(std::ssize(call.norm) == net.value_dim);
  HOCKET_CHECK(call.out.rows == call.x.rows && call.out.cols == net.value_columns());
  HOCKET_CHECK(call.out.dtype == call.layer.shape.dtype);
  for (const DeltaSequence& sequence : call.sequences) {
    HOCKET_CHECK((sequence.block >= 0 && sequence.num_rows > 0));
    HOCKET_CHECK(sequence.row_begin + sequence.num_rows <= call.x.rows);
    HOCKET_CHECK((sequence.load_state_at < 0 || sequence.load_state_at % kDeltaBlock == 0));
  }
}

}  // namespace

// A worker takes one key head of one sequence, with the value heads that share it, because their
// states depend on no other head. It goes through the tokens block by block:
//
//   border                                        border
//     S ----+---------+----- .. -----+------------> S'
//           |         |              |
//        token 0   token 1        token 63
//
// A token reads S and the tokens before it in the block; S' is made of S and all tokens at once.
void delta_net(Backend& backend, const DeltaNetCall& call) {
  check_shapes(call);
  if (backend.isa() == Isa::ref) return ref::delta_net(backend, call);
  const DeltaShape& shape = call.layer.shape;
  const int num_items = static_cast<int>(call.sequences.size()) * shape.net.num_key_heads;
  with_dtype(shape.dtype, [&](auto t) {
    using T = decltype(t);
    // The heads of a sequence are neighbours in memory.
    run_neighbours(backend.workers(), num_items, [&](int index, int worker) {
      Layout layout(backend.scratch<std::byte>(worker, delta_net_scratch_bytes(shape)));
      ChannelScratch<T> scratch;
      scratch.lay(layout, shape);
      if (shape.net.channel_decay) {
        ChannelDeltaItem<T>(backend, call, scratch, index).run();
      } else {
        DeltaItem<T>(backend, call, scratch.delta, index).run();
      }
    });
  });
}

// The base answers a query and a key, and the state takes a key's value in; then the keys and
// values of half a block.
DeltaNetWork delta_net_work(const DeltaShape& shape) {
  const DeltaNetConfig& net = shape.net;
  const auto element = static_cast<double>(size_of(shape.dtype));
  const double keys = net.num_key_heads * static_cast<double>(shape.keys_elements());
  const double values = net.num_value_heads * static_cast<double>(shape.values_elements());
  const double base = net.num_value_heads * static_cast<double>(shape.base_elements());
  const double state = 3.0 * net.num_value_heads * net.key_dim * net.value_dim;
  const double open =
      0.5 * kDeltaBlock *
      (2.0 * net.num_key_heads * net.key_dim + 2.0 * net.num_value_heads * net.value_dim);
  return {.block_bytes = element * (base + 0.5 * (keys + values)),
          .state_bytes_of_row =
              (2 * static_cast<double>(shape.state_bytes()) + element * (base + keys + values)) /
              kDeltaBlock,
          .operations_of_row = 2 * (state + open)};
}

int64_t delta_net_scratch_bytes(const DeltaShape& shape) {
  Layout layout;
  with_dtype(shape.dtype, [&](auto t) { ChannelScratch<decltype(t)>().lay(layout, shape); });
  return layout.bytes();
}

}  // namespace hocket
