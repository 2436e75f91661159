#include "apps/bench_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cluster/spawn.h"

namespace hocket {

int become_bench_program(std::string_view command, const Arguments& arguments) {
  const Result<std::string> own = own_program();
  if (!own) return report(own.error());
  const std::string program = std::filesystem::path(*own).replace_filename("hocket-bench");
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  std::string name(command);
  words.push_back(name.data());
  for (const std::string& one : arguments) words.push_back(const_cast<char*>(one.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  execv(program.c_str(), words.data());
  return report(error(ErrorCode::io, "{} cannot be started, which runs `hocket {}`: {}", program,
                      command, std::strerror(errno))
                    .with_fix("./hocket build makes it; a package has it beside hocket"));
}

int call_bench_program(std::string_view command, const Arguments& arguments) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    return report(error(ErrorCode::io, "no process can be made: {}", std::strerror(errno)));
  if (child == 0) _exit(become_bench_program(command, arguments));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace hocket
