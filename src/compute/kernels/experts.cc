#include "compute/kernels/experts.h"

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/task_product.h"

namespace hocket {
namespace {

constexpr int kMaxExperts = 1024;

// The experts that have rows, those with most rows first, so that the last tasks are short.
struct Active {
  int32_t experts[kMaxExperts];
  int count = 0;
  int max_rows = 0;
};

int num_rows(const ExpertsCall& call, int expert) {
  return call.offsets[expert + 1] - call.offsets[expert];
}

void find_active(const ExpertsCall& call, Active& active) {
  for (int expert = 0; expert < std::ssize(call.experts); ++expert)
    if (num_rows(call, expert) > 0) active.experts[active.count++] = expert;
  std::sort(active.experts, active.experts + active.count, [&](int32_t a, int32_t b) {
    const int rows_a = num_rows(call, a), rows_b = num_rows(call, b);
    return rows_a != rows_b ? rows_a > rows_b : a < b;
  });
  if (active.count > 0) active.max_rows = num_rows(call, active.experts[0]);
}

// One task: some panels of one expert's product.
struct Part {
  int expert, panel, panels, worker;
};

// `weight` says which product: &ExpertWeights::gate_up or ::down.
template <class Body>
void for_each_part(Backend& backend, const ExpertsCall& call, const Active& active,
                   PackedWeight ExpertWeights::* weight, Body&& body) {
  const PackedWeight& any = call.experts[active.experts[0]].*weight;
  const int width =
      std::min(any.panels(), panels_per_task(any.panels() * active.count, any.k_blocks(),
                                             active.max_rows, backend.workers().size()));
  const int parts = (any.panels() + width - 1) / width;
  backend.workers().run(active.count * parts, [&](int task, int worker) {
    const int panel = task % parts * width;
    body(Part{active.experts[task / parts], panel, std::min(width, any.panels() - panel), worker});
  });
}

template <class T>
void run_gate_up(Backend& backend, const ExpertsCall& call, const Active& active) {
  const auto swiglu = backend.rows().of<T>().swiglu;
  const View<T> middle = call.middle.as<T>();
  for_each_part(backend, call, active, &ExpertWeights::gate_up, [&](const Part& part) {
    const int first = call.offsets[part.expert];
    const View<const T> x = call.x.as<const T>().slice_rows(first, num_rows(call, part.expert));
    const PackedWeight& w = call.experts[part.expert].gate_up;
    multiply_then(backend, part.worker, product_of(x, w, part.panel, part.panels),
                  [&](int row, int rows, const float* results) {
                    for (int i = 0; i < rows; ++i) {
                      T* to = middle.row(first + row + i) + part.panel / 2 * kPanelN;
                      for (int pair = 0; pair < part.panels; pair += 2, results += 2 * kPanelN)
                        swiglu(results, results + kPanelN, kPanelN, to + pair / 2 * kPanelN);
                    }
                  });
  });
}

template <class T>
void run_down(Backend& backend, const ExpertsCall& call, const Active& active) {
  const View<T> middle = call.middle.as<T>();
  for_each_part(backend, call, active, &ExpertWeights::down, [&](const Part& part) {
    const int first = call.offsets[part.expert];
    const View<const T> x = middle.slice_rows(first, num_rows(call, part.expert));
    const PackedWeight& w = call.experts[part.expert].down;
    const Product<T> p = product_of(x, w, part.panel, part.panels);
    const int column = part.panel * kPanelN;
    const int columns = std::min(part.panels * kPanelN, w.n - column);
    const bool whole_panels = columns == part.panels * kPanelN;
    if (call.y.dtype == DType::f32 && whole_panels) {
      const View<float> y = call.y.as<float>();
      return multiply_into(backend, part.worker, p, y.row(first) + column, y.stride);
    }
    multiply_then(backend, part.worker, p, [&](int row, int rows, const float* results) {
      with_dtype(call.y.dtype, [&](auto t) {
        using Out = decltype(t);
        const auto round = backend.rows().of<Out>().round;
        for (int i = 0; i < rows; ++i)
          round(results + i * part.panels * kPanelN, columns,
                call.y.as<Out>().row(first + row + i) + column);
      });
    });
  });
}

void check_shapes(const ExpertsCall& call) {
  const int64_t middle_cols = round_up(call.intermediate, kBlockK);
  HOCKET_CHECK(std::ssize(call.experts) <= kMaxExperts);
  HOCKET_CHECK(std::ssize(call.offsets) == std::ssize(call.experts) + 1);
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
    HOCKET_CHECK((e.gate_up.k == call.x.cols && e.gate_up.n == 2 * middle_cols));
    HOCKET_CHECK((e.down.k == call.intermediate && e.down.n == call.x.cols));
  }
}

}  // namespace

void run_experts(Backend& backend, const ExpertsCall& call) {
  check_shapes(call);
  Active active;
  find_active(call, active);
  if (active.count == 0) return;
  with_dtype(call.x.dtype, [&](auto t) {
    using T = decltype(t);
    run_gate_up<T>(backend, call, active);
    run_down<T>(backend, call, active);
  });
}

}  // namespace hocket
