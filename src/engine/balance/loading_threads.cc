#include "engine/balance/loading_threads.h"

#include <utility>

namespace hocket {
namespace {

// Long loads have many loops, one soon after the other; between loads the threads sleep.
constexpr int64_t kSpinNs = 20'000;

}  // namespace

LoadingThreads::LoadingThreads(int num_workers, std::vector<int> cpus)
    : pool_({.num_workers = num_workers,
             .cpus = std::move(cpus),
             .spin_ns = kSpinNs,
             .counts_time = true}) {}

}  // namespace hocket
