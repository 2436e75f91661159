#include "policy/simulation/step_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/text_file.h"
#include "core/bounded_json.h"

namespace hocket {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxStepModelBytes = 16 << 20;

constexpr size_t kNumTerms = 5;
using Terms = std::array<double, kNumTerms>;

struct Measurement {
  Terms work{};
  double us = 0;
};

Terms terms_of(const StepWork& w) {
  return {w.passes, w.rows, w.outputs, w.keys, w.experts};
}

double dot(const Terms& a, const Terms& b) {
  double sum = 0;
  for (size_t i = 0; i < kNumTerms; ++i) sum += a[i] * b[i];
  return sum;
}

// Returns how many keys rows [begin, begin + len) of a sequence attend to.
double keys_of(double begin, double len) {
  return len * begin + len * (len + 1) / 2;
}

// Solves least squares of relative errors over the terms in `chosen` (a bit each); nullopt if they
// depend on each other.
std::optional<Terms> solve(const std::vector<Measurement>& measured, unsigned chosen) {
  std::array<Terms, kNumTerms> a{};
  Terms b{};
  for (const Measurement& m : measured)
    for (size_t i = 0; i < kNumTerms; ++i) {
      b[i] += m.work[i] / m.us;
      for (size_t j = 0; j < kNumTerms; ++j) a[i][j] += m.work[i] * m.work[j] / (m.us * m.us);
    }
  std::array<size_t, kNumTerms> index{};
  size_t n = 0;
  for (size_t i = 0; i < kNumTerms; ++i)
    if (chosen >> i & 1) index[n++] = i;
  // Columns are scaled to length 1, so that a pivot near 0 can only mean dependence.
  Terms scale{};
  for (size_t i = 0; i < n; ++i) {
    scale[i] = std::sqrt(a[index[i]][index[i]]);
    if (scale[i] == 0) return std::nullopt;
  }
  std::array<std::array<double, kNumTerms + 1>, kNumTerms> m{};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) m[i][j] = a[index[i]][index[j]] / (scale[i] * scale[j]);
    m[i][n] = b[index[i]] / scale[i];
  }
  for (size_t k = 0; k < n; ++k) {
    if (m[k][k] < 1e-9) return std::nullopt;
    for (size_t i = k + 1; i < n; ++i)
      for (size_t j = n + 1; j-- > k;) m[i][j] -= m[k][j] * m[i][k] / m[k][k];
  }
  Terms x{};
  for (size_t k = n; k-- > 0;) {
    double residual = m[k][n];
    for (size_t j = k + 1; j < n; ++j) residual -= m[k][j] * x[index[j]] * scale[j];
    x[index[k]] = residual / m[k][k] / scale[k];
  }
  return x;
}

double squares(const std::vector<Measurement>& measured, const Terms& x) {
  double sum = 0;
  for (const Measurement& m : measured) sum += std::pow(dot(m.work, x) / m.us - 1, 2);
  return sum;
}

// Returns the best solution without a negative coefficient among the 31 subsets of terms.
std::optional<Terms> fit(const std::vector<Measurement>& measured) {
  std::optional<Terms> best;
  for (unsigned chosen = 1; chosen < 1u << kNumTerms; ++chosen) {
    const std::optional<Terms> x = solve(measured, chosen);
    if (!x || std::ranges::any_of(*x, [](double c) { return c < 0; })) continue;
    if (!best || squares(measured, *x) < squares(measured, *best)) best = x;
  }
  return best;
}

// Reads one line of the bench: the work that it ran and the time that it took.
Measurement read_case(const OrderedJson& line, int chunk_tokens) {
  StepWork work;
  work.experts = line.at("experts_hit").get<double>();
  if (line.at("case") == "prefill") {
    work.rows = line.at("input_len").get<double>();
    work.passes = std::ceil(work.rows / chunk_tokens);
    work.outputs = 1;
    work.keys = keys_of(0, work.rows);
  } else {
    const double steps = line.at("output_len").get<double>();
    work.rows = work.outputs = line.at("batch").get<double>();
    work.passes = 1;
    work.keys = work.rows * (line.at("context_len").get<double>() + (steps + 1) / 2);
  }
  return {terms_of(work), line.at("us_per_step").get<double>()};
}

StepModel model_of(const OrderedJson& j) {
  StepModel m;
  m.name = j.at("name").get<std::string>();
  m.fixed_us = j.at("fixed_us").get<double>();
  m.row_us = j.at("row_us").get<double>();
  m.output_us = j.at("output_us").get<double>();
  m.key_us = j.at("key_us").get<double>();
  m.expert_us = j.at("expert_us").get<double>();
  m.num_experts = j.at("num_experts").get<int>();
  m.top_k = j.at("top_k").get<int>();
  m.num_moe_layers = j.at("num_moe_layers").get<int>();
  m.turnaround_us = j.at("turnaround_us").get<double>();
  m.residual_median = j.value("residual_median", 0.0);
  m.max_residual = j.value("residual_max", 0.0);
  return m;
}

}  // namespace

double StepModel::us(const StepWork& w) const {
  return dot(terms_of(w), {fixed_us, row_us, output_us, key_us, expert_us});
}

double StepModel::experts_hit(double rows) const {
  if (num_experts == 0) return 0;
  const double missed = std::pow(1.0 - static_cast<double>(top_k) / num_experts, rows);
  return num_moe_layers * num_experts * (1 - missed);
}

StepWork StepModel::work_of(const Batch& batch) const {
  StepWork work{.passes = 1,
                .rows = static_cast<double>(batch.num_rows),
                .experts = experts_hit(batch.num_rows)};
  for (const Slice& slice : batch.slices) {
    work.outputs += slice.is_sampled ? 1 : 0;
    work.keys += keys_of(slice.begin, slice.len);
  }
  return work;
}

StepModel shipped_step_model() {
  return {.name = "shipped: small, 0.7 B with 32 experts top-4, bf16, 2 cores of Zen 4",
          .fixed_us = 2204,
          .row_us = 995.7,
          .output_us = 74.8,
          .key_us = 0.3698,
          .expert_us = 39.76,
          .num_experts = 32,
          .top_k = 4,
          .num_moe_layers = 12,
          .residual_median = 0.001,
          .max_residual = 0.002};
}

Result<StepModel> fit_step_model(std::istream& bench_lines, const std::string& name) {
  StepModel model;
  model.name = name;
  std::vector<Measurement> measured;
  std::string line;
  bool has_head = false;
  int chunk_tokens = 0;
  try {
    while (std::getline(bench_lines, line)) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const OrderedJson j = parse_bounded_json<OrderedJson>(line);
      if (!j.contains("case")) {
        model.num_experts = j.at("num_experts").get<int>();
        model.top_k = j.at("top_k").get<int>();
        model.num_moe_layers = j.at("num_moe_layers").get<int>();
        chunk_tokens = std::max(1, j.at("chunk_tokens").get<int>());
        has_head = true;
      } else if (has_head) {
        measured.push_back(read_case(j, chunk_tokens));
      }
    }
  } catch (const OrderedJson::exception& e) {
    return fail(
        error(ErrorCode::bad_value, "{} is not what bench one-batch prints: {}", name, e.what())
            .with_fix("hocket bench one-batch --json > FILE"));
  }
  const auto is_prefill = [](const Measurement& m) { return m.work[1] > m.work[2]; };
  const auto prefills = std::ranges::count_if(measured, is_prefill);
  const bool enough = prefills >= 2 && static_cast<int64_t>(measured.size()) - prefills >= 3 &&
                      std::ranges::all_of(measured, [](const Measurement& m) { return m.us > 0; });
  const std::optional<Terms> x = enough ? fit(measured) : std::nullopt;
  if (!x)
    return fail(error(ErrorCode::bad_value,
                      "{} has {} measured passes; a fit takes 2 prefills and 3 decodes of "
                      "different sizes",
                      name, measured.size())
                    .with_fix("hocket bench one-batch --json --input-len 64,512,2048 --batch "
                              "1,4,16,32 > FILE"));
  model.fixed_us = (*x)[0];
  model.row_us = (*x)[1];
  model.output_us = (*x)[2];
  model.key_us = (*x)[3];
  model.expert_us = (*x)[4];
  std::vector<double> off;
  for (const Measurement& m : measured) off.push_back(std::abs(dot(m.work, *x) / m.us - 1));
  std::ranges::sort(off);
  model.residual_median = off[off.size() / 2];
  model.max_residual = off.back();
  return model;
}

Result<StepModel> read_step_model(const std::string& path) {
  auto text = read_text_file(path, kMaxStepModelBytes);
  if (!text) return fail(Error(text.error()).with_fix("hocket bench one-batch --json > FILE"));
  const OrderedJson whole = parse_bounded_json<OrderedJson>(*text);
  if (!whole.is_object() || !whole.contains("fixed_us")) {
    std::istringstream lines(*std::move(text));
    return fit_step_model(lines, path);
  }
  try {
    return model_of(whole);
  } catch (const OrderedJson::exception& e) {
    return fail(ErrorCode::bad_value, "{} is no step model: {}", path, e.what());
  }
}

std::string to_json(const StepModel& m) {
  return OrderedJson({{"name", m.name},
                      {"fixed_us", m.fixed_us},
                      {"row_us", m.row_us},
                      {"output_us", m.output_us},
                      {"key_us", m.key_us},
                      {"expert_us", m.expert_us},
                      {"num_experts", m.num_experts},
                      {"top_k", m.top_k},
                      {"num_moe_layers", m.num_moe_layers},
                      {"turnaround_us", m.turnaround_us},
                      {"residual_median", m.residual_median},
                      {"residual_max", m.max_residual}})
      .dump(2);
}

}  // namespace hocket
