// Starts ranks of a bench as processes of this machine, and pins each to a core.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "base/result.h"

namespace hocket {

// Pins the calling thread to this core, as the server does with a rank. Else the kernel would put
// two ranks that talk to each other onto one core, where they take turns.
void pin_thread(int cpu);

// Children of this process. The destructor kills those that still run.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();

  // Starts a child that runs body() and ends with the status it returns.   Errors: io.
  Result<void> start(const std::function<int()>& body);
  // Waits until all have ended.   Errors: lost_rank, if one did not end with 0.
  Result<void> wait();

 private:
  std::vector<pid_t> pids_;
};

}  // namespace hocket
