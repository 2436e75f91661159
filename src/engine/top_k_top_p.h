// Cuts a distribution to top_k and top_p without sorting the vocabulary: probabilities are counted
// into buckets by their leading bits, so only the bucket that holds the cut is sorted.
// Thread: one worker. Allocates nothing after construction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace hocket {

class TopKTopPFilter {
 public:
  explicit TopKTopPFilter(int vocab_size);

  // Counts probabilities in [0, 1]; 0 means that the token is cut already.
  void count(std::span<const float> probabilities);
  // Sets to +0 all but the `k` largest by logit; tokens that tie with the k-th stay.
  void keep_largest(std::span<const float> logits, int k, std::span<float> probabilities);
  // Keeps tokens in falling order (ties: lower id first) until their mass reaches top_p of the
  // whole, and sets the others to +0. The first always stays.
  void keep_mass(double top_p, std::span<float> probabilities);

 private:
  static constexpr int kMantissaBits = 4;
  static constexpr int kNumBuckets = (127 << kMantissaBits) + 2;  // cover probabilities in [0, 1]
  static int bucket_of(float probability);

  std::array<int32_t, kNumBuckets> counts_{};
  std::array<double, kNumBuckets> masses_{};
  std::vector<int32_t> ids_;  // token ids of one bucket
  std::vector<float> values_;
};

}  // namespace hocket
