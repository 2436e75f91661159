// Measures how far a rounded form of a model (quantized weights, int8 KV, int8 rows) is from a
// plainer one: it compares the next token's distribution after the same tokens, row by row.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/check/checker.h"

namespace hocket {

// Logits of every token of some scripts, one script after the other.
struct LogitTable {
  int vocab_size = 0;
  std::vector<float> values;  // [rows, vocab_size]

  int64_t rows() const { return std::ssize(values) / vocab_size; }
  std::span<const float> row(int64_t r) const {
    return std::span(values).subspan(static_cast<size_t>(r * vocab_size), vocab_size);
  }
};
// Records the logits of the scripts. Errors: those of play_scripts().
Result<LogitTable> record_logits(Runner& runner, std::span<const Script> scripts,
                                 const PlayOptions& options = {});

struct LogitDistance {
  int64_t rows = 0;
  double kl_mean = 0;                  // mean of KL(plain || rounded), in nats; NaN if a logit is
  int64_t sure_rows = 0;               // rows whose likeliest token leads by a logit
  double sure_changed = 0;             // share of them whose likeliest token changed
  double diff_mean = 0, max_diff = 0;  // |logit - logit|
};
// Compares tables of the same scripts.
LogitDistance distance(const LogitTable& plain, const LogitTable& rounded);

// The part of a model that is rounded, and its format.
enum class Rounding : uint8_t {
  fp8,
  int8,
  int4,
  mxfp4,
  mxfp8,
  nvfp4,
  int8_kv,
  int8_dispatch,
  int8_combine
};

// The formats to which weights, keys and values, rows for experts, or sums of their results are
// rounded; nullopt if they are not. `against` is as in QualityInput.
struct Roundings {
  std::optional<Rounding> weights, kv, dispatch, combine;
  bool any() const { return weights || kv || dispatch || combine; }
};
Roundings roundings_of(const ModelChoice& choice, const std::string& against);

struct QualityInput {
  ServerSettings settings;  // settings of the rounded form
  // Folder of the same model with plain weights. Empty: the same files without --quantization; if
  // the files are quantized, the same files in float32.
  std::string against;
  std::function<void(const LoadProgress&)> progress;
};
// Compares weights with plain weights, then int8 KV, dispatch and combine, each with the same
// weights alone.
// Each number has a bound that was measured on the bundled model. Loads one form after the other.
// Errors: those of Runner::create and play_scripts().
Result<std::vector<CheckLine>> check_quality(const QualityInput& input,
                                             std::span<const Script> scripts);

}  // namespace hocket
