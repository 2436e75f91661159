// How far a rounded form of a model (quantized weights, int8 KV, int8 dispatch) is from a plainer
// one: the next token's distribution after the same tokens, row by row.
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
// Errors: those of play_scripts().
Result<LogitTable> record_logits(Runner& runner, std::span<const Script> scripts,
                                 const PlayOptions& options = {});

struct LogitDistance {
  int64_t rows = 0;
  double kl_mean = 0;                  // of KL(plain || rounded), in nats; NaN where a logit is
  int64_t sure_rows = 0;               // where the likeliest token leads by a logit
  double sure_changed = 0;             // share of them whose likeliest token is another
  double diff_mean = 0, diff_max = 0;  // |logit - logit|
};
// Tables of the same scripts.
LogitDistance distance(const LogitTable& plain, const LogitTable& rounded);

// What is rounded.
enum class Rounding : uint8_t { fp8, int8, int4, int8_kv, int8_dispatch };
std::string_view rounding_name(Rounding rounding);

// What the weights, the keys and values, or the rows that experts get, of such a model are rounded
// to; none: nothing is.
// `against` is as below.
struct Roundings {
  std::optional<Rounding> weights, kv, dispatch;
  bool any() const { return weights || kv || dispatch; }
};
Roundings roundings_of(const ModelChoice& choice, const std::string& against);

struct QualityQuestion {
  ServerSettings settings;  // of the rounded form
  // Folder of the same model with plain weights. Empty: what --quantization rounded; for quantized
  // files, the same files in float32.
  std::string against;
  std::function<void(const LoadProgress&)> progress;
};
// Weights against plain weights, then int8 KV and int8 dispatch against the same weights alone:
// each number with a bound that comes from what the bundled model shows. Loads one form after the
// other. Errors: those of Runner::create and play_scripts().
Result<std::vector<CheckLine>> check_quality(const QualityQuestion& question,
                                             std::span<const Script> scripts);

}  // namespace hocket
