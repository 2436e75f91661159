#include "compute/weights/random_weights.h"

#include <algorithm>
#include <cstring>

#include "base/mix.h"

namespace hocket {
namespace {

constexpr int kBlock = 64;  // elements made at once: a count that the compiler vectorizes
constexpr float kMatrixDeviation = 0.05f;
constexpr float kNormDeviation = 0.1f;  // deviation around 1
// Four uniform numbers in [0, 2^16) sum to mean 2 (2^16 - 1) and deviation sqrt(4/12) 2^16.
constexpr int32_t kSumMean = 2 * 0xffff;
constexpr float kSumDeviation = 37837.1f;

uint64_t mix(uint64_t x) {
  return mix64(x + kMixStep);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed);
  for (const char c : name) key = mix(key ^ static_cast<unsigned char>(c));
  return key;
}

// out[i] = mean + scale * (sum of four 16-bit uniform numbers of element col + i, centred).
void fill_block(uint64_t row_key, uint32_t col, float mean, float scale, float* out) {
  const auto low = static_cast<uint32_t>(row_key);
  const auto high = static_cast<uint32_t>(row_key >> 32);
  for (int i = 0; i < kBlock; ++i) {
    uint32_t x = (col + static_cast<uint32_t>(i)) ^ low;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15) ^ high) * 0x846ca68bu;
    x ^= x >> 16;
    uint32_t y = (x ^ 0x5bd1e995u) * 0x9e3779b1u;
    y ^= y >> 15;
    const auto sum = static_cast<int32_t>((x & 0xffffu) + (x >> 16) + (y & 0xffffu) + (y >> 16));
    out[i] = mean + static_cast<float>(sum - kSumMean) * scale;
  }
}

}  // namespace

void random_rows(uint64_t seed, std::string_view name, int64_t row_begin, View<float> out) {
  const bool norm = name.ends_with("norm.weight");
  const float mean = norm ? 1.0f : 0.0f;
  const float scale = (norm ? kNormDeviation : kMatrixDeviation) / kSumDeviation;
  const uint64_t key = key_of(seed, name);
  for (int64_t r = 0; r < out.rows; ++r) {
    const uint64_t row_key = mix(key ^ static_cast<uint64_t>(row_begin + r));
    float* row = out.row(r);
    int64_t c = 0;
    for (; c + kBlock <= out.cols; c += kBlock)
      fill_block(row_key, static_cast<uint32_t>(c), mean, scale, row + c);
    if (c < out.cols) {
      float rest[kBlock];
      fill_block(row_key, static_cast<uint32_t>(c), mean, scale, rest);
      std::memcpy(row + c, rest, (out.cols - c) * sizeof(float));
    }
  }
}

}  // namespace hocket
