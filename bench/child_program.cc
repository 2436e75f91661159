#include "bench/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string_view>

#include "base/clock.h"

namespace hocket {
namespace {

constexpr int kNotStarted = 127;

struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) == 0) read_end = ends[0], write_end = ends[1];
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    for (const int end : {read_end, write_end})
      if (end >= 0) close(end);
  }
};

[[noreturn]] void become(std::vector<char*> arguments, const Pipe& out, const Pipe& err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out.write_end, STDOUT_FILENO);
  dup2(err.write_end, STDERR_FILENO);
  std::signal(SIGPIPE, SIG_DFL);  // programs expect the default; hocket ignores the signal
  execvp(arguments[0], arguments.data());
  _exit(kNotStarted);
}

// Reads both pipes at once, else the child could block on a full pipe that is not read.
void read_all(std::array<int, 2> ends, std::array<std::string*, 2> texts) {
  std::array<pollfd, 2> waits = {pollfd{ends[0], POLLIN, 0}, pollfd{ends[1], POLLIN, 0}};
  std::array<char, 4096> block{};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      const ssize_t got = read(waits[i].fd, block.data(), block.size());
      if (got > 0)
        texts[i]->append(block.data(), static_cast<size_t>(got));
      else if (got == 0 || errno != EINTR)
        waits[i].fd = -1;
    }
  }
}

std::string_view last_of(std::string_view text) {
  constexpr size_t kLast = 600;
  return text.size() > kLast ? text.substr(text.size() - kLast) : text;
}

}  // namespace

Result<ProgramRun> run_program(const std::vector<std::string>& command) {
  Pipe out, err;
  if (out.read_end < 0 || err.read_end < 0) return fail(ErrorCode::io, "no pipe can be made");
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const TimePoint start = RealClock().now();
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::io, "cannot start another process");
  if (pid == 0) become(arguments, out, err);
  for (Pipe* pipe : {&out, &err}) close(std::exchange(pipe->write_end, -1));
  ProgramRun run;
  read_all({out.read_end, err.read_end}, {&run.out, &run.err});
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  run.seconds = to_seconds(RealClock().now() - start);
  run.peak_resident_bytes = int64_t{usage.ru_maxrss} * 1024;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return run;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted && run.err.empty())
    return fail(ErrorCode::io, "{} cannot be started", command[0]);
  return fail(ErrorCode::io, "{} ended with {} {}: {}", command[0],
              WIFSIGNALED(status) ? "signal" : "status",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
              last_of(run.err.empty() ? run.out : run.err));
}

Result<std::string> own_path() {
  std::error_code code;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", code).string();
  if (code) return fail(ErrorCode::io, "/proc/self/exe cannot be read");
  return path;
}

}  // namespace hocket
