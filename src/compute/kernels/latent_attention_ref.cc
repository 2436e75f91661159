// The reference for latent_attention.h: it computes a head's keys and values, or its absorbed
// query, one product at a time.
#include "compute/kernels/latent_attention.h"

#include "compute/kernels/attention_ref.h"
#include "compute/kernels/reference_operations.h"
#include "compute/tensor/buffer.h"

namespace hocket::ref {
namespace {

// Reads number `dim` of a token's latent row: c, then from rope_offset() on the key part.
template <class T>
struct Latents {
  const KvLayer& kv;
  std::span<const PageId> pages;

  float number(int token, int64_t dim) const {
    const KvShape& shape = kv.shape;
    const PageId page = pages[token / shape.page_tokens];
    const int in_page = token % shape.page_tokens;
    if (shape.dtype != DType::int8) return to_float(kv.latent<T>(page, in_page)[dim]);
    const float scale = kv.scales(page, 0)[2 * in_page + (dim < shape.rope_offset() ? 0 : 1)];
    return to_float(from_float<T>(kv.latent<int8_t>(page, in_page)[dim] * scale));
  }
};

template <class T>
struct AbsorbedKeys {
  Latents<T> latents;
  void load(int, int) {}
  float key(int token, int dim) const { return latents.number(token, dim); }
  float value(int token, int dim) const { return latents.number(token, dim); }
};

// Returns result n of round(w . x); x(i) is fp32.
template <class T, class X>
T up(const PackedWeight& w, int n, X&& x) {
  const T* const packed = w.panel_as<T>(0);
  return from_float<T>(product(
      w.k, 0, x, [&](int k) { return to_float(packed[packed_offset(n, k, w.k_blocks())]); }));
}

// The keys [nope | rope] and values of the block that was loaded last.
template <class T>
struct ExpandedKeys {
  Latents<T> latents;
  PackedWeight key_up, value_up;
  int rope_dim = 0;
  T* keys = nullptr;    // [kSoftmaxBlock][key_dim]
  T* values = nullptr;  // [kSoftmaxBlock][value_dim]
  int block = 0;

  int key_dim() const { return key_up.n + rope_dim; }
  void lay(Layout& scratch) {
    keys = scratch.array<T>(int64_t{kSoftmaxBlock} * key_dim());
    values = scratch.array<T>(int64_t{kSoftmaxBlock} * value_up.n);
  }
  void load(int begin, int end) {
    block = begin;
    for (int token = begin; token < end; ++token) {
      const auto c = [&](int i) { return latents.number(token, i); };
      T* const key = keys + (token - begin) * key_dim();
      for (int n = 0; n < key_up.n; ++n) key[n] = up<T>(key_up, n, c);
      for (int i = 0; i < rope_dim; ++i)
        key[key_up.n + i] =
            from_float<T>(latents.number(token, latents.kv.shape.rope_offset() + i));
      for (int n = 0; n < value_up.n; ++n)
        values[(token - begin) * value_up.n + n] = up<T>(value_up, n, c);
    }
  }
  float key(int token, int dim) const { return to_float(keys[(token - block) * key_dim() + dim]); }
  float value(int token, int dim) const {
    return to_float(values[(token - block) * value_up.n + dim]);
  }
};

// One task and one head.
template <class T>
struct HeadRun {
  Backend& backend;
  const LatentAttentionCall& call;
  int worker = 0;
  const AttentionSequence& sequence;
  const AttentionPlan::Task& task;
  int head = 0;

  int row() const { return sequence.row_begin + task.row_begin; }
  Latents<T> latents() const { return {call.kv, sequence.pages}; }
  int64_t q_dim() const { return round_up(call.nope_dim + call.rope_dim, kBlockK); }

  template <class Keys>
  Queries<T, Keys> queries(const Keys& keys) const {
    Queries<T, Keys> made{keys};
    made.num = task.num_rows;
    made.first_position = sequence.first_position + task.row_begin;
    made.scale = call.scale;
    return made;
  }

  void run_expanded() const {
    ExpandedKeys<T> keys{latents(), call.heads.key_up[head], call.heads.value_up[head],
                         call.rope_dim};
    Layout measured;
    keys.lay(measured);
    const auto with_keys = [&](const auto& made) {
      auto all = queries(made);
      all.q = call.q.as<T>().row(row()) + head * q_dim();
      all.q_stride = call.q.stride;
      all.out = call.out.as<T>().row(row()) + head * call.value_dim;
      all.out_stride = call.out.stride;
      all.key_dim = made.key_dim();
      all.value_dim = call.value_dim;
      return all;
    };
    const int64_t floats = with_keys(keys).scratch_floats();
    auto* const memory =
        backend.scratch<std::byte>(worker, measured.bytes() + floats * int64_t{sizeof(float)});
    Layout layout(memory);
    keys.lay(layout);
    with_keys(keys).run(reinterpret_cast<float*>(memory + measured.bytes()));
  }

  void run_absorbed() const {
    const KvShape& shape = call.kv.shape;
    const int rank = shape.value_dim;
    const View<T> q_rows = call.q_absorbed.as<T>(), y_rows = call.y_absorbed.as<T>();
    for (int r = row(); r < row() + task.num_rows; ++r) {
      const T* const q = call.q.as<T>().row(r) + head * q_dim();
      T* const to = q_rows.row(r) + head * shape.row_elements();
      std::fill_n(to, shape.row_elements(), T{});
      for (int n = 0; n < rank; ++n)
        to[n] = up<T>(call.heads.key_absorb[head], n, [&](int i) { return to_float(q[i]); });
      std::copy_n(q + call.nope_dim, call.rope_dim, to + shape.rope_offset());
      std::fill_n(y_rows.row(r) + head * shape.rope_offset(), shape.rope_offset(), T{});
    }
    auto all = queries(AbsorbedKeys<T>{latents()});
    all.q = q_rows.row(row()) + head * shape.row_elements();
    all.q_stride = q_rows.stride;
    all.out = y_rows.row(row()) + head * shape.rope_offset();
    all.out_stride = y_rows.stride;
    all.key_dim = static_cast<int>(shape.row_elements());
    all.value_dim = rank;
    all.run(backend.scratch<float>(worker, all.scratch_floats()));
    for (int r = row(); r < row() + task.num_rows; ++r) {
      const T* const y = y_rows.row(r) + head * shape.rope_offset();
      T* const out = call.out.as<T>().row(r) + head * call.value_dim;
      for (int n = 0; n < call.value_dim; ++n)
        out[n] = up<T>(call.heads.value_up[head], n, [&](int i) { return to_float(y[i]); });
    }
  }
};

}  // namespace

void latent_attention(Backend& backend, const LatentAttentionCall& call) {
  with_dtype(call.q.dtype, [&](auto t) {
    const auto num_heads = static_cast<int>(call.heads.key_up.size());
    const auto num_items = static_cast<int>(call.plan.tasks.size()) * num_heads;
    backend.workers().run(num_items, [&](int item, int worker) {
      const AttentionPlan::Task& whole = call.plan.tasks[item / num_heads];
      for (int member = 0; member < whole.num_members; ++member) {
        const AttentionPlan::Task task = call.plan.member(whole, member);
        const AttentionSequence& sequence = call.plan.sequences[task.sequence];
        const HeadRun<decltype(t)> run{backend, call, worker, sequence, task, item % num_heads};
        if (sequence.form == MlaForm::expanded) {
          run.run_expanded();
        } else {
          run.run_absorbed();
        }
      }
    });
  });
}

}  // namespace hocket::ref
