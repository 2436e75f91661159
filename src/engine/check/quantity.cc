#include "engine/check/quantity.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace hocket {

void Quantity::near(std::span<const float> got, std::span<const float> want, const Origin& origin) {
  HOCKET_CHECK(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) near(got[i], want[i], origin);
}

void Quantity::near(double got, double want, const Origin& origin) {
  ++line_.compared;
  const double off = std::abs(got - want);
  const double bounded = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
  line_.worst = std::max(line_.worst, bounded);
  if (!(bounded <= line_.tolerance.atol + line_.tolerance.rtol * std::abs(want)))
    failed(origin, got, want);
}

void Quantity::equal(int64_t got, int64_t want, const Origin& origin) {
  ++line_.compared;
  if (got == want) return;
  line_.worst += 1;
  failed(origin, static_cast<double>(got), static_cast<double>(want));
}

void Quantity::failed(const Origin& origin, double got, double want) {
  if (!line_.ok && origin.layer >= failed_layer_) return;
  line_.ok = false;
  failed_layer_ = origin.layer;
  line_.first_failure = fmt::format("{} position {}: got {:.9g}, want {:.9g}", origin.prompt,
                                    origin.position, got, want);
  if (origin.layer >= 0)
    line_.first_failure =
        fmt::format("layer {} is the first that differs: {}", origin.layer, line_.first_failure);
}

}  // namespace hocket
