#include "base/running_median.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace hocket {
namespace {

TEST(RunningMedians, AreThoseOfTheLastValues) {
  std::mt19937 random(1);
  RunningMedian<5> median;
  std::deque<float> last;
  for (int i = 0; i < 200; ++i) {
    last.push_back(static_cast<float>(random() % 1000));
    if (last.size() > 5) last.pop_front();
    median.add(last.back());
    std::vector<float> sorted(last.begin(), last.end());
    std::ranges::sort(sorted);
    const size_t middle = sorted.size() / 2;
    const double want = sorted.size() % 2 == 1 ? static_cast<double>(sorted[middle])
                                               : 0.5 * (sorted[middle - 1] + sorted[middle]);
    ASSERT_EQ(median.median(), want);
  }
}

}  // namespace
}  // namespace hocket
