#include "compute/kernels/latent_attention.h"

#include "compute/kernels/attention_run.h"
#include "compute/kernels/latent_sources.h"
#include "compute/kernels/reference_operations.h"

namespace hocket {
namespace {

// An absorbed item has at least this many heads, if there are as many: their rows fill a tile.
constexpr int kMinItemHeads = 16;
// Panels of a head's product that one worker takes.
constexpr int kHeadPanels = 8;

template <class T>
AttentionForm<T> expanded_form(int num_heads, const HeadDims& dims) {
  AttentionForm<T> form;
  form.num_heads = num_heads;
  form.q_dim = dims.q_dim();
  form.value_dim = form.out_dim = dims.value;
  form.max_rows = kExpandedTokens;
  return form;
}

template <class T>
AttentionForm<T> absorbed_form(int num_heads, const KvShape& shape) {
  AttentionForm<T> form;
  form.num_heads = num_heads;
  form.heads_per_item = std::min(num_heads, kQueryRows);
  form.q_dim = static_cast<int>(shape.row_elements());
  form.value_dim = shape.value_dim;
  form.out_dim = static_cast<int>(shape.rope_offset());
  form.max_rows = kQueryRows;
  return form;
}

// Returns the heads per item. Items get fewer heads if items and segments would leave workers idle,
// but no fewer than needed, because every item makes the tiles of its keys again.
int absorbed_group(const AttentionPlan& plan, std::span<const AttentionPlan::Task> tasks,
                   int num_heads, int num_workers) {
  int units = 0;
  for (const AttentionPlan::Task& task : tasks) units += num_segments(plan, task);
  int groups = (num_heads + kQueryRows - 1) / kQueryRows;
  const int enough = num_workers == 1 ? 1 : 2 * num_workers;
  while (units * groups < enough && num_heads > kMinItemHeads * groups) groups *= 2;
  return (num_heads + groups - 1) / groups;
}

// Calls body(begin, end) for runs of neighbouring rows of the absorbed form.
template <class Body>
void for_generated_rows(const AttentionPlan& plan, Body&& body) {
  int64_t begin = 0, end = 0;
  for (const AttentionSequence& s : plan.sequences) {
    if (s.form != MlaForm::absorbed) continue;
    if (s.row_begin != end) {
      if (end > begin) body(begin, end);
      begin = s.row_begin;
    }
    end = s.row_begin + s.num_rows;
  }
  if (end > begin) body(begin, end);
}

// y = round(w[h] . x) for every head h of the absorbed rows. The numbers of head h start at column
// h * x_head of x and h * y_head of y.
template <class T>
struct HeadProducts {
  View<T> x, y;
  int64_t x_head = 0, y_head = 0;
  std::span<const PackedWeight> weights;

  struct Scratch {
    float* results = nullptr;  // [kQueryRows][kHeadPanels * 16]
    std::byte* product = nullptr;
    void lay(Layout& layout, int k_blocks) {
      results = layout.array<float>(kQueryRows * kHeadPanels * kPanelN);
      product = layout.array<std::byte>(product_scratch_bytes(kQueryRows, k_blocks));
    }
    static int64_t bytes(int k) {
      Layout layout;
      Scratch().lay(layout, static_cast<int>(round_up(k, kBlockK) / kBlockK));
      return layout.bytes();
    }
  };

  void run(Backend& backend, const AttentionPlan& plan) const {
    const PackedWeight& first = weights[0];
    const int shares = (first.panels() + kHeadPanels - 1) / kHeadPanels;
    const int64_t bytes = Scratch::bytes(first.k);
    backend.workers().run(static_cast<int>(weights.size()) * shares, [&](int item, int worker) {
      Layout layout(backend.scratch<std::byte>(worker, bytes));
      Scratch scratch;
      scratch.lay(layout, first.k_blocks());
      for_generated_rows(plan, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row += kQueryRows)
          run_rows(backend, {item / shares, item % shares * kHeadPanels}, scratch,
                   View<T>(x.row(row), std::min<int64_t>(kQueryRows, end - row), x.cols, x.stride),
                   y.row(row));
      });
    });
  }

 private:
  struct Panels {
    int head, begin;
  };
  void run_rows(const Backend& backend, Panels at, const Scratch& scratch, View<T> from,
                T* to) const {
    const PackedWeight& w = weights[at.head];
    const int panels = std::min(kHeadPanels, w.panels() - at.begin), columns = panels * kPanelN;
    const int column = at.begin * kPanelN, used = std::min(columns, w.n - column);
    backend.products().run<T>({.x = from.data + at.head * x_head,
                               .x_stride = from.stride,
                               .rows = static_cast<int>(from.rows),
                               .w = w.panel_as<T>(at.begin),
                               .panel_stride = int64_t{w.k_blocks()} * kTileElements,
                               .panels = panels,
                               .k_blocks = w.k_blocks(),
                               .y = scratch.results,
                               .y_stride = columns,
                               .accumulate = false,
                               .scratch = scratch.product});
    for (int64_t r = 0; r < from.rows; ++r)
      backend.rows().of<T>().round(scratch.results + r * columns, used,
                                   to + r * y.stride + at.head * y_head + column);
  }
};

// One call of latent_attention().
template <class T>
class LatentRun {
 public:
  LatentRun(Backend& backend, const LatentAttentionCall& call)
      : backend_(backend), call_(call), dims_{call.nope_dim, call.rope_dim, call.value_dim} {}

  // Computes the rows of the absorbed form.
  void run_absorbed(std::span<const AttentionPlan::Task> tasks) {
    const KvShape& shape = call_.kv.shape;
    const auto num_heads = static_cast<int>(call_.heads.key_up.size());
    // If nope_dim is no multiple of 32, the operand extends into the rope part, which is multiplied
    // with weights of zero.
    HeadProducts<T>{call_.q.as<T>(), call_.q_absorbed.as<T>(), dims_.q_dim(), shape.row_elements(),
                    call_.heads.key_absorb}
        .run(backend_, call_.plan);
    copy_rope(num_heads);
    AttentionForm<T> form = absorbed_form<T>(num_heads, shape);
    form.heads_per_item = absorbed_group(call_.plan, tasks, num_heads, backend_.workers().size());
    form.q = call_.q_absorbed.as<T>();
    form.out = call_.y_absorbed.as<T>();
    form.scale = call_.scale;
    const AbsorbedSources<T> sources{call_.kv};
    BatchRun(backend_, call_.plan, tasks, form, sources).run();
    HeadProducts<T>{call_.y_absorbed.as<T>(), call_.out.as<T>(), shape.rope_offset(), dims_.value,
                    call_.heads.value_up}
        .run(backend_, call_.plan);
  }

  // Computes the rows of prompt tokens.
  void run_expanded(std::span<const AttentionPlan::Task> tasks) {
    AttentionForm<T> form = expanded_form<T>(static_cast<int>(call_.heads.key_up.size()), dims_);
    form.q = call_.q.as<T>();
    form.out = call_.out.as<T>();
    form.scale = call_.scale;
    const ExpandedSources<T> sources{call_.kv, backend_.rows().of<T>(), backend_.products(),
                                     call_.heads, dims_};
    BatchRun(backend_, call_.plan, tasks, form, sources).run();
  }

 private:
  // Fills the rest of q_absorbed: zeros after the product, the rope part, zeros after it.
  void copy_rope(int num_heads) {
    const KvShape& shape = call_.kv.shape;
    const View<T> q = call_.q.as<T>(), absorbed = call_.q_absorbed.as<T>();
    backend_.workers().run(num_heads, [&](int head, int) {
      for_generated_rows(call_.plan, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* const from = q.row(row) + head * dims_.q_dim() + dims_.nope;
          T* const to = absorbed.row(row) + head * shape.row_elements();
          T* const rope = to + shape.rope_offset();
          std::fill(to + shape.value_dim, rope, T{});
          std::memcpy(rope, from, dims_.rope * sizeof(T));
          std::fill(rope + dims_.rope, to + shape.row_elements(), T{});
        }
      });
    });
  }

  Backend& backend_;
  const LatentAttentionCall& call_;
  const HeadDims dims_;
};

void check_heads(const LatentAttentionCall& call) {
  const int rank = call.kv.shape.value_dim;
  const auto check = [&](std::span<const PackedWeight> weights, int n, int k) {
    HOCKET_CHECK(weights.size() == call.heads.key_up.size());
    for (const PackedWeight& w : weights) HOCKET_CHECK(w.n == n && w.k == k && w.bias == nullptr);
  };
  HOCKET_CHECK(!call.heads.key_up.empty());
  check(call.heads.key_up, call.nope_dim, rank);
  check(call.heads.value_up, call.value_dim, rank);
  check(call.heads.key_absorb, rank, call.nope_dim);
}

void check_shapes(const LatentAttentionCall& call) {
  const KvShape& shape = call.kv.shape;
  const auto num_heads = static_cast<int64_t>(call.heads.key_up.size());
  HOCKET_CHECK(shape.kind == KvShape::Kind::latent && shape.num_heads == 1);
  HOCKET_CHECK(shape.key_dim == shape.value_dim + call.rope_dim);
  HOCKET_CHECK(shape.has_known_pages());
  const DType dtype = call.q.dtype;
  HOCKET_CHECK(shape.dtype == dtype || shape.dtype == DType::int8);
  HOCKET_CHECK(call.q.cols == num_heads * round_up(call.nope_dim + call.rope_dim, kBlockK));
  HOCKET_CHECK(call.out.dtype == dtype && call.out.cols == num_heads * call.value_dim);
  for (const AttentionSequence& s : call.plan.sequences) {
    const int64_t rows = s.row_begin + s.num_rows, tokens = s.first_position + s.num_rows;
    HOCKET_CHECK(rows <= call.q.rows && rows <= call.out.rows);
    HOCKET_CHECK(static_cast<int64_t>(s.pages.size()) * shape.page_tokens >= tokens);
    if (s.form == MlaForm::expanded) continue;
    HOCKET_CHECK(rows <= call.q_absorbed.rows && rows <= call.y_absorbed.rows);
    HOCKET_CHECK(call.q_absorbed.cols == num_heads * shape.row_elements());
    HOCKET_CHECK(call.y_absorbed.cols == num_heads * shape.rope_offset());
  }
}

}  // namespace

int64_t latent_attention_scratch_bytes(const LatentShape& shape) {
  int64_t bytes = 0;
  with_dtype(shape.dtype, [&](auto t) {
    using T = decltype(t);
    const KvLayer kv = {shape.kv, nullptr};
    const HeadDims dims{shape.nope_dim, shape.rope_dim, shape.value_dim};
    const AbsorbedSources<T> absorbed{kv};
    const ExpandedSources<T> expanded{
        kv, row_kernels(Isa::ref).of<T>(), product_kernels(Isa::ref), {}, dims};
    using Absorbed = BatchRun<T, AbsorbedSources<T>>;
    using Expanded = BatchRun<T, ExpandedSources<T>>;
    bytes =
        std::max({Absorbed::scratch_bytes(absorbed_form<T>(shape.num_heads, shape.kv), absorbed),
                  Expanded::scratch_bytes(expanded_form<T>(shape.num_heads, dims), expanded),
                  HeadProducts<T>::Scratch::bytes(std::max(shape.nope_dim, shape.kv.value_dim))});
  });
  return bytes;
}

void latent_attention(Backend& backend, const LatentAttentionCall& call) {
  check_heads(call);
  check_shapes(call);
  if (backend.isa() == Isa::ref) return ref::latent_attention(backend, call);
  with_dtype(call.q.dtype, [&](auto t) {
    const std::span tasks(call.plan.tasks);
    const auto form = [&](const AttentionPlan::Task& task) {
      return call.plan.sequences[task.sequence].form;
    };
    // The plan puts all expanded rows before the absorbed ones.
    const auto absorbed = std::ranges::find(tasks, MlaForm::absorbed, form);
    const auto num_expanded = static_cast<size_t>(absorbed - tasks.begin());
    LatentRun<decltype(t)> run(backend, call);
    if (num_expanded > 0) run.run_expanded(tasks.first(num_expanded));
    if (num_expanded < tasks.size()) run.run_absorbed(tasks.subspan(num_expanded));
  });
}

}  // namespace hocket
