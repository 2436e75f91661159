// Ranks of a bench as processes of this machine, each on a core of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "base/result.h"

namespace hocket {

// The calling thread runs on this core alone, as a rank of the server does. Else the kernel puts
// two that talk to each other onto one core, where they take turns.
void pin_thread(int cpu);

// Children of this process. Those that still run are killed at the end.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();

  // One more, whose exit status body() returns.   Errors: io.
  Result<void> start(const std::function<int()>& body);
  // Until all have ended.   Errors: lost_rank, when one did not end with 0.
  Result<void> wait();

 private:
  std::vector<pid_t> pids_;
};

}  // namespace hocket
