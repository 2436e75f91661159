#include "bench/processes.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace hocket {

void pin_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

Children::~Children() {
  for (const pid_t pid : pids_) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
}

Result<void> Children::start(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::io, "cannot start another process");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body());
  }
  pids_.push_back(pid);
  return {};
}

Result<void> Children::wait() {
  for (const pid_t pid : std::exchange(pids_, {})) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) return fail(ErrorCode::lost_rank, "a rank ended with status {}", status);
  }
  return {};
}

}  // namespace hocket
