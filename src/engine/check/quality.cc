#include "engine/check/quality.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace hocket {
namespace {

class Recorder final : public RowReader {
 public:
  Recorder(std::span<const Script> scripts, int vocab_size) {
    int64_t rows = 0;
    for (const Script& script : scripts) {
      first_row_.push_back(rows);
      rows += script.num_tokens();
    }
    table_.vocab_size = vocab_size;
    // A row that is never shown stays NaN, and so does every mean over it.
    table_.values.assign(static_cast<size_t>(rows * vocab_size),
                         std::numeric_limits<float>::quiet_NaN());
  }
  void head(ScriptRow row, const Head& got) override {
    const int64_t r = first_row_[row.script] + row.position;
    std::ranges::copy(got.logits, table_.values.begin() + r * table_.vocab_size);
  }
  LogitTable take() { return std::move(table_); }

 private:
  std::vector<int64_t> first_row_;
  LogitTable table_;
};

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_log_sum = log_sum_exp(p), q_log_sum = log_sum_exp(q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_log_sum;
    sum += std::exp(log_p) * (log_p - (q[i] - q_log_sum));
  }
  return sum;
}

constexpr float kSureMargin = 1;

bool is_sure(std::span<const float> logits, std::ptrdiff_t best) {
  const auto rival = [&](float x) { return x > logits[best] - kSureMargin; };
  return std::ranges::count_if(logits, rival) == 1;
}

// The bounds are three times the distances of the bundled model on its recorded prompts, in any
// layout (docs/models.md, "Proof"); a wrong scale, zero point or order of nibbles is off by far
// more. If no token changed there, one in two hundred may. One changed token is within any bound,
// for of few sure ones it would be a large share and say little.
struct QualityBound {
  double kl_mean, sure_changed, diff_mean, max_diff;
};
QualityBound bound_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::fp8:
      return {.kl_mean = 0.02, .sure_changed = 0.005, .diff_mean = 0.3, .max_diff = 15};
    case Rounding::int8:
      return {.kl_mean = 0.007, .sure_changed = 0.005, .diff_mean = 0.15, .max_diff = 12};
    case Rounding::int4:
      return {.kl_mean = 0.18, .sure_changed = 0.04, .diff_mean = 0.9, .max_diff = 20};
    case Rounding::mxfp4:
      return {.kl_mean = 0.33, .sure_changed = 0.12, .diff_mean = 1.3, .max_diff = 22};
    case Rounding::mxfp8:
      return {.kl_mean = 0.023, .sure_changed = 0.005, .diff_mean = 0.32, .max_diff = 15};
    case Rounding::nvfp4:
      return {.kl_mean = 0.18, .sure_changed = 0.06, .diff_mean = 1, .max_diff = 19};
    case Rounding::int8_kv:
      return {.kl_mean = 0.005, .sure_changed = 0.005, .diff_mean = 0.12, .max_diff = 13};
    case Rounding::int8_combine:
      return {.kl_mean = 0.0015, .sure_changed = 0.005, .diff_mean = 0.06, .max_diff = 10};
    case Rounding::int8_dispatch:
      return {.kl_mean = 0.001, .sure_changed = 0.005, .diff_mean = 0.05, .max_diff = 10};
  }
  std::unreachable();
}

std::string name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::fp8:
      return "fp8";
    case Rounding::int8:
      return "int8";
    case Rounding::int4:
      return "int4";
    case Rounding::mxfp4:
      return "mxfp4";
    case Rounding::mxfp8:
      return "mxfp8";
    case Rounding::nvfp4:
      return "nvfp4";
    case Rounding::int8_kv:
      return "int8 KV";
    case Rounding::int8_dispatch:
      return "int8 dispatch";
    case Rounding::int8_combine:
      return "int8 combine";
  }
  std::unreachable();
}

void add_lines(std::vector<CheckLine>& lines, const LogitDistance& found, Rounding rounding,
               std::string_view against) {
  const QualityBound bound = bound_of(rounding);
  const auto add = [&](const char* quantity, const char* measure, int64_t compared, double value,
                       double limit) {
    lines.push_back({.dtype = name_of(rounding),
                     .way = fmt::format("to {}", against),
                     .quantity = quantity,
                     .measure = measure,
                     .compared = compared,
                     .worst = value,
                     .tolerance = {limit, 0},
                     .ok = value <= limit,
                     .first_failure = {}});
  };
  add("KL of the next token", "mean", found.rows, found.kl_mean, bound.kl_mean);
  if (found.sure_rows > 0)
    add("sure tokens changed", "share", found.sure_rows, found.sure_changed,
        std::max(bound.sure_changed, 1 / static_cast<double>(found.sure_rows)));
  add("|logit difference|", "mean", found.rows, found.diff_mean, bound.diff_mean);
  add("|logit difference|", "worst", found.rows, found.max_diff, bound.max_diff);
}

std::optional<Rounding> rounding_of(WeightFormat format) {
  if (format == WeightFormat::fp8) return Rounding::fp8;
  if (format == WeightFormat::int8 || format == WeightFormat::q8_0) return Rounding::int8;
  if (format == WeightFormat::int4) return Rounding::int4;
  if (has_block_scales(format)) return Rounding::int8;  // only rows are rounded
  if (format == WeightFormat::mxfp4) return Rounding::mxfp4;
  if (format == WeightFormat::mxfp8) return Rounding::mxfp8;
  if (format == WeightFormat::nvfp4) return Rounding::nvfp4;
  return std::nullopt;
}

ServerSettings plain_weights(const ServerSettings& rounded, const std::string& against) {
  ServerSettings plain = rounded;
  if (!against.empty())
    plain.model.model_path = against;
  else if (plain.model.quantization == "none")
    plain.model.dtype = "float32";
  plain.model.quantization = "none";
  return plain;
}

}  // namespace

Result<LogitTable> record_logits(Runner& runner, std::span<const Script> scripts,
                                 const PlayOptions& options) {
  Recorder recorder(scripts, runner.info().model.vocab_size);
  HOCKET_TRY_VOID(play_scripts(runner, scripts, options, recorder));
  return recorder.take();
}

LogitDistance distance(const LogitTable& plain, const LogitTable& rounded) {
  HOCKET_CHECK(plain.vocab_size == rounded.vocab_size);
  HOCKET_CHECK(plain.values.size() == rounded.values.size());
  LogitDistance found{.rows = plain.rows()};
  for (int64_t r = 0; r < found.rows; ++r) {
    const auto p = plain.row(r), q = rounded.row(r);
    found.kl_mean += divergence(p, q);
    const auto best = std::ranges::max_element(p) - p.begin();
    if (is_sure(p, best)) {
      ++found.sure_rows;
      found.sure_changed += std::ranges::max_element(q) - q.begin() != best;
    }
    for (size_t i = 0; i < p.size(); ++i) {
      const double off = std::abs(double{p[i]} - q[i]);
      found.diff_mean += off;
      found.max_diff = std::max(found.max_diff, off);
    }
  }
  const auto rows = static_cast<double>(found.rows);
  found.kl_mean /= rows;
  if (found.sure_rows > 0) found.sure_changed /= static_cast<double>(found.sure_rows);
  found.diff_mean /= rows * plain.vocab_size;
  return found;
}

Roundings roundings_of(const ModelChoice& choice, const std::string& against) {
  ModelChoice as_stored = choice;
  // If other files are compared, float32 shows how far the stored numbers are.
  if (!against.empty()) as_stored.dtype = DType::bf16;
  Roundings found{.weights = rounding_of(as_stored.weight_format())};
  // Most blocks of a GGUF file may keep their format while others become int4.
  if (choice.model.quant.layout == QuantConfig::Layout::gguf &&
      choice.quantize == WeightFormat::int4 && choice.dtype == DType::bf16)
    found.weights = Rounding::int4;
  if (choice.kv_dtype == DType::int8) found.kv = Rounding::int8_kv;
  if (choice.dispatch_dtype == DType::int8) found.dispatch = Rounding::int8_dispatch;
  if (choice.combine_dtype == DType::int8) found.combine = Rounding::int8_combine;
  return found;
}

Result<std::vector<CheckLine>> check_quality(const QualityInput& input,
                                             std::span<const Script> scripts) {
  const auto record = [&](const ServerSettings& settings) -> Result<std::pair<LogitTable, DType>> {
    HOCKET_TRY(
        const auto runner,
        Runner::create({.settings = settings, .progress = input.progress, .tokenizer_eos = {}}));
    HOCKET_TRY(LogitTable logits, record_logits(*runner, scripts));
    return std::pair(std::move(logits), runner->info().dtype);
  };
  HOCKET_TRY(const ModelChoice choice, choose_model_form(input.settings));
  const Roundings roundings = roundings_of(choice, input.against);
  ServerSettings weights_rounded = input.settings;
  weights_rounded.memory.kv_cache_dtype = "auto";
  weights_rounded.parallel.dispatch_dtype = "auto";
  weights_rounded.parallel.combine_dtype = "auto";
  HOCKET_TRY(const auto middle, record(weights_rounded));
  std::vector<CheckLine> lines;
  if (roundings.weights) {
    HOCKET_TRY(const auto plain, record(plain_weights(weights_rounded, input.against)));
    if (plain.first.values.size() != middle.first.values.size())
      return fail(ErrorCode::bad_value, "--against {} has another vocabulary", input.against);
    add_lines(lines, distance(plain.first, middle.first), *roundings.weights,
              dtype_name(plain.second));
  }
  const auto compare = [&](Rounding rounding, const ServerSettings& settings) -> Result<void> {
    HOCKET_TRY(const auto rounded, record(settings));
    add_lines(lines, distance(middle.first, rounded.first), rounding, dtype_name(middle.second));
    return {};
  };
  if (roundings.kv) {
    ServerSettings kv_rounded = weights_rounded;
    kv_rounded.memory.kv_cache_dtype = input.settings.memory.kv_cache_dtype;
    HOCKET_TRY_VOID(compare(*roundings.kv, kv_rounded));
  }
  if (roundings.dispatch) {
    ServerSettings rows_rounded = weights_rounded;
    rows_rounded.parallel.dispatch_dtype = input.settings.parallel.dispatch_dtype;
    HOCKET_TRY_VOID(compare(*roundings.dispatch, rows_rounded));
  }
  if (roundings.combine) {
    ServerSettings sums_rounded = weights_rounded;
    sums_rounded.parallel.combine_dtype = input.settings.parallel.combine_dtype;
    HOCKET_TRY_VOID(compare(*roundings.combine, sums_rounded));
  }
  return lines;
}

}  // namespace hocket
