#include "compute/kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compute/kernels/arithmetic/lane.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Long wavelengths are stretched by `factor`, short ones kept, and those between interpolated.
double llama3_frequency(const RopeConfig& config, double f) {
  const double turns = config.original_context * f / kTwoPi;  // turns over the original context
  if (turns > config.high_freq_factor) return f;
  if (turns < config.low_freq_factor) return f / config.factor;
  if (config.high_freq_factor == config.low_freq_factor) return f;
  const double keep =
      (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  return (1 - keep) * f / config.factor + keep * f;
}

// The dims at which YaRN starts and ends its change from keeping a frequency to stretching it.
struct YarnRange {
  double low = 0, high = 0;
};
YarnRange yarn_range(const RopeConfig& config) {
  const auto dim = [&](double turns) {
    return config.rotary_dim * std::log(config.original_context / (kTwoPi * turns)) /
           (2 * std::log(config.theta));
  };
  YarnRange range = {dim(config.beta_fast), dim(config.beta_slow)};
  if (config.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  range.low = std::max(range.low, 0.0);
  range.high = std::min(range.high, config.rotary_dim - 1.0);
  if (range.low == range.high) range.high += 0.001;
  return range;
}

double yarn_attention_factor(const RopeConfig& config) {
  const auto m = [&](double c) {
    return config.factor <= 1 ? 1 : 0.1 * c * std::log(config.factor) + 1;
  };
  if (config.attention_factor) return *config.attention_factor;
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return m(config.mscale) / m(config.mscale_all_dim);
  return m(1);
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config) {
  HOCKET_CHECK((config.rotary_dim >= 0 && config.rotary_dim % 2 == 0));
  RopeFrequencies out;
  const bool yarn = config.scaling == RopeConfig::Scaling::yarn;
  const YarnRange range = yarn ? yarn_range(config) : YarnRange{};
  for (int i = 0; i < config.rotary_dim / 2; ++i) {
    double f = std::pow(config.theta, -2.0 * i / config.rotary_dim);
    switch (config.scaling) {
      case RopeConfig::Scaling::none:
        break;
      case RopeConfig::Scaling::linear:
        f /= config.factor;
        break;
      case RopeConfig::Scaling::proportional:
        if (2 * i >= config.turning_dim) f = 0;
        break;
      case RopeConfig::Scaling::divided:
        f /= config.divisors[i];
        break;
      case RopeConfig::Scaling::llama3:
        f = llama3_frequency(config, f);
        break;
      case RopeConfig::Scaling::yarn: {
        const double ramp = std::clamp((i - range.low) / (range.high - range.low), 0.0, 1.0);
        f = f / config.factor * ramp + f * (1 - ramp);
        break;
      }
    }
    out.inv_freq.push_back(static_cast<float>(f));
  }
  if (yarn) out.attention_factor = static_cast<float>(yarn_attention_factor(config));
  return out;
}

void rope_angles(Backend& backend, const RopeFrequencies& frequencies,
                 std::span<const int32_t> positions, View<float> cos, View<float> sin) {
  const auto n = static_cast<int>(frequencies.inv_freq.size());
  const auto rows = static_cast<int64_t>(positions.size());
  HOCKET_CHECK(cos.rows == rows && cos.cols == n);
  HOCKET_CHECK(sin.rows == rows && sin.cols == n);
  for_row_ranges(backend, rows, 8 * n, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* const out[2] = {cos.row(r), sin.row(r)};
      backend.rows().angles(static_cast<float>(positions[r]), frequencies.inv_freq.data(), n,
                            frequencies.attention_factor, out);
    }
  });
}

void query_factors(const RopeConfig& config, std::span<const int32_t> positions,
                   View<float> factors) {
  HOCKET_CHECK(factors.rows == std::ssize(positions) && factors.cols == 1);
  HOCKET_CHECK(config.original_context >= 1);
  for (int64_t r = 0; r < factors.rows; ++r) {
    const auto steps = static_cast<float>(
        std::floor((positions[r] + config.query_shift) / config.original_context));
    const float ln = math::log(ref::Lane{1 + steps}).x;
    *factors.row(r) = std::fma(static_cast<float>(config.query_beta), ln, 1.0f);
  }
}

void scale_rows(Backend& backend, View<const float> factors, View<float> x) {
  HOCKET_CHECK(factors.rows == x.rows && factors.cols == 1);
  for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) backend.rows().scale(*factors.row(r), x.cols, x.row(r));
  });
}

}  // namespace hocket
