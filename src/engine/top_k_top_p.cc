#include "engine/top_k_top_p.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace hocket {

TopKTopPFilter::TopKTopPFilter(int vocab_size) {
  ids_.reserve(vocab_size);
  values_.reserve(vocab_size);
}

int TopKTopPFilter::bucket_of(float probability) {
  const uint32_t bits = std::bit_cast<uint32_t>(probability) >> (23 - kMantissaBits);
  return static_cast<int>(std::min<uint32_t>(bits, kNumBuckets - 1));
}

void TopKTopPFilter::count(std::span<const float> probabilities) {
  counts_.fill(0);
  masses_.fill(0);
  for (const float p : probabilities) {
    if (p == 0.0f) continue;
    const int bucket = bucket_of(p);
    ++counts_[bucket];
    masses_[bucket] += p;
  }
}

void TopKTopPFilter::keep_largest(std::span<const float> logits, int k,
                                  std::span<float> probabilities) {
  //   higher buckets: all stay | `bucket`, which holds the k-th: cut by logit | lower: all cut
  int bucket = kNumBuckets - 1;
  int above = 0;  // tokens in higher buckets
  while (bucket > 0 && above + counts_[bucket] < k) above += counts_[bucket--];
  if (above + counts_[bucket] < k) return;  // fewer than k are left

  values_.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (probabilities[i] != 0.0f && bucket_of(probabilities[i]) == bucket)
      values_.push_back(logits[i]);
  const auto kth = values_.begin() + (k - above - 1);
  std::nth_element(values_.begin(), kth, values_.end(), std::greater<>());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (probabilities[i] == 0.0f) continue;
    const int here = bucket_of(probabilities[i]);
    if (here > bucket || (here == bucket && logits[i] >= *kth)) continue;
    --counts_[here];
    masses_[here] -= probabilities[i];
    probabilities[i] = 0.0f;
  }
}

void TopKTopPFilter::keep_mass(double top_p, std::span<float> probabilities) {
  double whole = 0;
  for (int b = kNumBuckets - 1; b >= 0; --b)
    if (counts_[b] > 0) whole += masses_[b];
  const double limit = top_p * whole;

  //   higher buckets: all stay | `bucket`, which holds the cut: sorted | lower: all cut
  int bucket = kNumBuckets - 1;
  double before = 0;  // mass in higher buckets
  while (bucket > 0 && (counts_[bucket] == 0 || before + masses_[bucket] < limit)) {
    if (counts_[bucket] > 0) before += masses_[bucket];
    --bucket;
  }

  ids_.clear();
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0.0f) continue;
    const int here = bucket_of(probabilities[i]);
    if (here == bucket) ids_.push_back(static_cast<int32_t>(i));
    if (here < bucket) probabilities[i] = 0.0f;
  }
  std::ranges::sort(ids_, [&](int32_t a, int32_t b) {
    return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
  });
  bool first = before == 0;
  for (const int32_t id : ids_) {
    const float p = probabilities[id];
    if (!first && before >= limit) probabilities[id] = 0.0f;
    before += p;
    first = false;
  }
}

}  // namespace hocket
