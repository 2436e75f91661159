#include "engine/balance/loading_threads.h"

#include <pthread.h>

#include <barrier>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

// Long loads have many loops, one soon after the other; between loads the threads sleep.
constexpr int64_t kSpinNs = 20'000;

}  // namespace

LoadingThreads::LoadingThreads(int num_workers, std::vector<int> cpus)
    : pool_({.num_workers = num_workers, .cpus = std::move(cpus), .spin_ns = kSpinNs}) {}

// Each worker has one task of this loop, because none ends before all have begun.
void LoadingThreads::adopt_caller() {
  pool_.adopt_caller();
  const int num_workers = pool_.size();
  std::vector<clockid_t> clocks(static_cast<size_t>(num_workers));
  std::barrier<> all_begun(num_workers);
  pool_.run(num_workers, [&](int, int worker) {
    HOCKET_CHECK(pthread_getcpuclockid(pthread_self(), &clocks[static_cast<size_t>(worker)]) == 0);
    all_begun.arrive_and_wait();
  });
  clocks_.assign(clocks.begin() + 1, clocks.end());
}

Duration LoadingThreads::time_of_others() const {
  Duration all{};
  for (const clockid_t clock : clocks_) {
    timespec used{};
    clock_gettime(clock, &used);
    all += std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  return all;
}

}  // namespace hocket
