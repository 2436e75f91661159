// The reference for attention.h: every number of a page is read by its own address.
#include "compute/kernels/attention_ref.h"
#include "compute/kernels/reference_operations.h"

namespace hocket::ref {
namespace {

template <class T>
struct PageKeys {
  const KvLayer& kv;
  std::span<const PageId> pages;
  int head = 0;

  void load(int, int) {}
  float key(int token, int dim) const {
    const KvShape& shape = kv.shape;
    return number(token, shape.key_offset(token % shape.page_tokens, dim), 0);
  }
  float value(int token, int dim) const {
    const KvShape& shape = kv.shape;
    const int in_page = token % shape.page_tokens;
    return number(token, shape.key_elements() + shape.value_offset(in_page, dim),
                  shape.page_tokens);
  }

 private:
  // Returns the number at `offset` of the head. int8: its scale is at `scales` + the token in the
  // page.
  float number(int token, int64_t offset, int scales) const {
    const int page_tokens = kv.shape.page_tokens;
    const PageId page = pages[token / page_tokens];
    if (kv.shape.dtype != DType::int8) return to_float(kv.keys<T>(page, head)[offset]);
    const float scale = kv.scales(page, head)[scales + token % page_tokens];
    return to_float(from_float<T>(kv.keys<int8_t>(page, head)[offset] * scale));
  }
};

}  // namespace

void attention(Backend& backend, const AttentionCall& call) {
  const KvShape& shape = call.kv.shape;
  with_dtype(call.q.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t q_dim = round_up(shape.key_dim, kBlockK);
    const auto num_heads = static_cast<int>(call.q.cols / q_dim);
    const auto num_items = static_cast<int>(call.plan.tasks.size()) * num_heads;
    backend.workers().run(num_items, [&](int item, int worker) {
      const AttentionPlan::Task& whole = call.plan.tasks[item / num_heads];
      const int head = item % num_heads, kv_head = head / (num_heads / shape.num_heads);
      for (int member = 0; member < whole.num_members; ++member) {
        const AttentionPlan::Task task = call.plan.member(whole, member);
        const AttentionSequence& sequence = call.plan.sequences[task.sequence];
        const int row = sequence.row_begin + task.row_begin;
        Queries<T, PageKeys<T>> queries{.keys = {call.kv, sequence.pages, kv_head},
                                        .q = call.q.as<T>().row(row) + head * q_dim,
                                        .q_stride = call.q.stride,
                                        .out = call.out.as<T>().row(row) + head * shape.value_dim,
                                        .out_stride = call.out.stride,
                                        .num = task.num_rows,
                                        .first_position = sequence.first_position + task.row_begin,
                                        .key_dim = shape.key_dim,
                                        .value_dim = shape.value_dim,
                                        .scale = call.scale,
                                        .visible_keys = call.visible,
                                        .soft_cap = call.soft_cap};
        if (!call.sinks.empty()) queries.sink = call.sinks[head];
        queries.run(backend.scratch<float>(worker, queries.scratch_floats()));
      }
    });
  });
}

}  // namespace hocket::ref
