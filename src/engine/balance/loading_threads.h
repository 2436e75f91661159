// The threads that pack the experts of an epoch, while no step runs: as many as the rank has
// workers, on the same cpus. The rank's own workers belong to the engine's thread, which attends to
// requests meanwhile. Owner: ExpertMover, which makes them at start. Thread: the one that adopts
// them.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/worker_pool.h"

namespace hocket {

class LoadingThreads {
 public:
  // cpus: as in WorkerPool::Options.
  LoadingThreads(int num_workers, std::vector<int> cpus);

  // Makes the calling thread one of them for good. Called once, before all else.
  void adopt_caller() { pool_.adopt_caller(); }
  WorkerPool& pool() { return pool_; }
  // Returns the processor's time that all of them but the caller have used for tasks.
  Duration time_of_others() const { return pool_.time_of_others(); }

 private:
  WorkerPool pool_;
};

}  // namespace hocket
