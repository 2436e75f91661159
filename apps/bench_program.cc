#include "apps/bench_program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cluster/spawn.h"

namespace hocket {

namespace {

Error cannot_start(const std::string& program, std::string_view command) {
  return error(ErrorCode::io, "{} cannot be started, which `hocket {}` needs: {}", program, command,
               std::strerror(errno))
      .with_fix("./hocket build makes it; a package has it beside hocket");
}

Result<std::string> bench_program() {
  HOCKET_TRY(const std::string own, own_program());
  return std::filesystem::path(own).replace_filename("hocket-bench").string();
}

}  // namespace

Result<void> check_bench_program(std::string_view command) {
  HOCKET_TRY(const std::string program, bench_program());
  if (access(program.c_str(), X_OK) != 0) return fail(cannot_start(program, command));
  return {};
}

int exec_bench_program(std::string_view command, const Arguments& arguments) {
  const Result<std::string> program = bench_program();
  if (!program) return report(program.error());
  std::vector<char*> words = {const_cast<char*>(program->c_str())};
  std::string name(command);
  words.push_back(name.data());
  for (const std::string& one : arguments) words.push_back(const_cast<char*>(one.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  execv(program->c_str(), words.data());
  return report(cannot_start(*program, command));
}

int call_bench_program(std::string_view command, const Arguments& arguments) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    return report(error(ErrorCode::io, "no process can be made: {}", std::strerror(errno)));
  if (child == 0) _exit(exec_bench_program(command, arguments));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace hocket
