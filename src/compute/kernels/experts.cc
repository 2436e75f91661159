#include "compute/kernels/experts.h"

#include "compute/kernels/neighbour_tasks.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/task_product.h"

namespace hocket {
namespace {

constexpr int kMaxExperts = 1024;

int runs_of(const ExpertsCall& call) {
  return static_cast<int>(call.offsets.size() / (call.experts.size() + 1));
}

// Some neighbouring rows of a call and the experts that own them. Experts with the most rows come
// first, so that the last tasks are short.
struct Pass {
  const ExpertsCall& call;
  int begin, end;
  int32_t experts[kMaxExperts];
  int num_experts = 0;
  const int num_runs;

  Pass(const ExpertsCall& c, int b, int e) : call(c), begin(b), end(e), num_runs(runs_of(c)) {
    for (int expert = 0; expert < std::ssize(call.experts); ++expert)
      if (num_rows(expert) > 0) experts[num_experts++] = expert;
    std::sort(experts, experts + num_experts, [&](int32_t x, int32_t y) {
      const int rows_x = num_rows(x), rows_y = num_rows(y);
      return rows_x != rows_y ? rows_x > rows_y : x < y;
    });
  }
  // Rows of an expert in one run and in this pass, counted from `begin`.
  int first_row(int expert, int run) const {
    return std::clamp(call.offsets[run * (call.experts.size() + 1) + expert], begin, end) - begin;
  }
  int num_rows(int expert, int run) const {
    return first_row(expert + 1, run) - first_row(expert, run);
  }
  int num_rows(int expert) const {
    int rows = 0;
    for (int run = 0; run < num_runs; ++run) rows += num_rows(expert, run);
    return rows;
  }
  int mean_rows() const { return (end - begin) / std::max(num_experts, 1); }
};

// Calls body(expert, part) for some panels of one expert's product and all its rows, run by run.
// `weight` is &ExpertWeights::gate_up or &ExpertWeights::down and selects the product.
template <class Body>
void for_each_part(Backend& backend, const Pass& pass, PackedWeight ExpertWeights::* weight,
                   Body&& body) {
  const PackedWeight& any = pass.call.experts[0].*weight;
  const int width =
      std::min(any.panels(), panels_per_task({any.panels() * pass.num_experts, any.panel_bytes(),
                                              pass.mean_rows(), backend.workers().size()}));
  const int parts = (any.panels() + width - 1) / width;
  run_neighbours(backend.workers(), pass.num_experts * parts, [&](int task, int worker) {
    const int expert = pass.experts[task / parts], panel = task % parts * width;
    for (int run = 0; run < pass.num_runs; ++run)
      if (const int rows = pass.num_rows(expert, run); rows > 0)
        body(expert, ProductRows::Part{.row = pass.first_row(expert, run),
                                       .rows = rows,
                                       .panel = panel,
                                       .panels = std::min(width, any.panels() - panel),
                                       .worker = worker});
  });
}

template <class T>
void multiply_gate_up(Backend& backend, const Pass& pass) {
  const ExpertsCall& call = pass.call;
  const ActivationKernels<T>& rows_of = backend.rows().of<T>();
  const auto middle_of = [&](const float* gate, const float* up, T* to) {
    if (call.activation.kind == Activation::Kind::silu)
      return rows_of.swiglu(gate, up, kPanelN, to);
    rows_of.glu({.gate = gate, .up = up, .n = kPanelN, .activation = call.activation, .y = to});
  };
  const View<T> middle = call.middle.as<T>();
  const ProductRows x(backend, call.x.slice_rows(pass.begin, pass.end - pass.begin),
                      call.experts[0].gate_up);
  const auto multiply = [&](int expert, const ProductRows::Part& part) {
    x.multiply_then(call.experts[expert].gate_up, part, [&](int row, View<const float> results) {
      for (int i = 0; i < results.rows; ++i) {
        const float* from = results.row(i);
        T* to = middle.row(pass.begin + row + i) + part.panel / 2 * kPanelN;
        for (int panel = 0; panel < part.panels; panel += 2, from += 2 * kPanelN)
          middle_of(from, from + kPanelN, to + panel / 2 * kPanelN);
      }
    });
  };
  for_each_part(backend, pass, &ExpertWeights::gate_up, multiply);
}

template <class T, class Out>
void multiply_down(Backend& backend, const Pass& pass) {
  const ExpertsCall& call = pass.call;
  const auto round = backend.rows().of<Out>().round;
  const View<Out> y = call.y.as<Out>();
  MatrixView middle = call.middle.slice_rows(pass.begin, pass.end - pass.begin);
  middle.cols = call.intermediate;
  const ProductRows x(backend, middle, call.experts[0].down);
  const auto multiply = [&](int expert, const ProductRows::Part& part) {
    const PackedWeight& w = call.experts[expert].down;
    const int column = part.panel * kPanelN, all_columns = part.panels * kPanelN;
    const int columns = std::min(all_columns, w.n - column);
    if constexpr (std::is_same_v<Out, float>)
      if (columns == all_columns)
        return x.multiply(w, part, y.row(pass.begin + part.row) + column, y.stride);
    x.multiply_then(w, part, [&](int row, View<const float> results) {
      for (int i = 0; i < results.rows; ++i)
        round(results.row(i), columns, y.row(pass.begin + row + i) + column);
    });
  };
  for_each_part(backend, pass, &ExpertWeights::down, multiply);
}

bool alike(const PackedWeight& a, const PackedWeight& b) {
  return a.format == b.format && a.group == b.group;
}

void check_shapes(const ExpertsCall& call) {
  const int64_t middle_cols = round_up(call.intermediate, kBlockK);
  HOCKET_CHECK(std::ssize(call.experts) <= kMaxExperts);
  HOCKET_CHECK(call.offsets.size() % (call.experts.size() + 1) == 0);
  HOCKET_CHECK(call.offsets.front() >= 0);
  HOCKET_CHECK(call.offsets.back() <= call.x.rows);
  HOCKET_CHECK(call.y.rows >= call.offsets.back());
  HOCKET_CHECK(call.y.cols == call.x.cols);
  HOCKET_CHECK((call.y.dtype == call.x.dtype || call.y.dtype == DType::f32));
  HOCKET_CHECK(call.middle.rows >= call.offsets.back());
  HOCKET_CHECK(call.middle.dtype == call.x.dtype);
  HOCKET_CHECK(call.middle.stride >= middle_cols);
  HOCKET_CHECK(call.x.stride >= round_up(call.x.cols, kBlockK));
  for (const ExpertWeights& e : call.experts) {
    HOCKET_CHECK(activation_dtype(e.gate_up.format) == call.x.dtype);
    HOCKET_CHECK(activation_dtype(e.down.format) == call.x.dtype);
    HOCKET_CHECK((alike(e.gate_up, call.experts[0].gate_up)));
    HOCKET_CHECK((alike(e.down, call.experts[0].down)));
    HOCKET_CHECK((e.gate_up.k == call.x.cols && e.gate_up.n == 2 * middle_cols));
    HOCKET_CHECK((e.down.k == call.intermediate && e.down.n == call.x.cols));
  }
}

// Returns the end of the next pass: the last border between experts among its share of rows, so
// that the rows of an expert are multiplied together.
int pass_end(const ExpertsCall& call, int begin, int max_rows) {
  const int64_t end = begin + equal_share(call.offsets.back() - begin, max_rows);
  const int border = std::ranges::upper_bound(call.offsets, end)[-1];
  return border > begin ? border : static_cast<int>(end);
}

// Calls body(pass) for all rows of the call, as many at a time as products by `weight` can take.
template <class Body>
void for_each_pass(Backend& backend, const ExpertsCall& call, PackedWeight ExpertWeights::* weight,
                   Body&& body) {
  const int max_rows = ProductRows::max_rows(backend, call.experts[0].*weight);
  const int end = call.offsets.back();
  for (int row = call.offsets.front(); row < end;) {
    const Pass pass(call, row, pass_end(call, row, max_rows));
    body(pass);
    row = pass.end;
  }
}

void all_gate_up(Backend& backend, const ExpertsCall& call) {
  for_each_pass(backend, call, &ExpertWeights::gate_up, [&](const Pass& pass) {
    with_dtype(call.x.dtype, [&](auto t) { multiply_gate_up<decltype(t)>(backend, pass); });
  });
}
void all_down(Backend& backend, const ExpertsCall& call) {
  for_each_pass(backend, call, &ExpertWeights::down, [&](const Pass& pass) {
    with_dtype(call.x.dtype, [&](auto t) {
      with_dtype(call.y.dtype,
                 [&](auto out) { multiply_down<decltype(t), decltype(out)>(backend, pass); });
    });
  });
}

}  // namespace

void run_experts(Backend& backend, const ExpertsCall& call) {
  run_gate_up(backend, call);
  run_down(backend, call);
}

void run_gate_up(Backend& backend, const ExpertsCall& call) {
  check_shapes(call);
  if (!call.experts.empty()) all_gate_up(backend, call);
}

void run_down(Backend& backend, const ExpertsCall& call) {
  check_shapes(call);
  if (!call.experts.empty()) all_down(backend, call);
}

}  // namespace hocket
