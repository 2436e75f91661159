#include "apps/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "apps/bench_program.h"
#include "base/mapped_files.h"
#include "base/nearest_name.h"
#include "engine/grammar/grammar_trials.h"

namespace hocket {
namespace {

std::span<const Command> table;  // set once, before any command runs

void print_help() {
  fmt::print("hocket: an inference server for Mixture-of-Experts language models\n\n");
  for (const Command& command : commands())
    fmt::print("  hocket {:<9} {}\n", command.name, command.about);
  fmt::print("\nhocket COMMAND --help shows a command's flags.\n");
}

int dispatch(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "help" || arguments[0] == "--help" ||
      arguments[0] == "-h") {
    print_help();
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") return version({});
  if (arguments[0] == kGrammarTrialsCommand) return serve_grammar_trials();
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    if (command.name == arguments[0]) {
      const Arguments rest(arguments.begin() + 1, arguments.end());
      return command.run != nullptr ? command.run(rest) : exec_bench_program(command.name, rest);
    }
    names.push_back(command.name);
  }
  Error unknown = error(ErrorCode::usage, "{} is not a command of hocket", arguments[0]);
  const auto near = nearest_name(arguments[0], names);
  unknown.fix = near ? fmt::format("hocket {}?", *near) : "hocket help lists them";
  return report(unknown);
}

}  // namespace

std::span<const Command> commands() {
  return table;
}

int report(const Error& e) {
  std::fflush(stdout);
  std::fputs((describe(e) + "\n").c_str(), stderr);  // does not throw if stderr has no reader
  return exit_status(e.code);
}

namespace {

// Returns the exit status after writing to stdout failed with errno `why`. Prints no message if the
// reader of a pipe has gone: head and less stop when they have enough.
int cannot_print(int why) {
  if (why == EPIPE) return 1;
  return report(error(ErrorCode::io, "the output cannot be written: {}", std::strerror(why)));
}

// Runs dispatch(). An exception that nothing else has caught ends the program with a message.
int dispatch_or_say_why(const Arguments& arguments) {
  try {
    const int status = dispatch(arguments);
    return std::fflush(stdout) == 0 ? status : cannot_print(errno);
  } catch (const std::bad_alloc&) {
    return report(error(ErrorCode::out_of_memory, "the memory of this process is used up")
                      .with_fix("more memory, or arguments and files that ask for less"));
  } catch (const std::system_error& e) {
    if (std::ferror(stdout) != 0) return cannot_print(e.code().value());
    if (e.code() == std::errc::resource_unavailable_try_again)  // a thread did not start
      return report(error(ErrorCode::out_of_memory, "{}", e.what())
                        .with_fix("more threads and address space for this process: `ulimit -u`, "
                                  "`ulimit -v`, pids.max of its cgroup; or a smaller "
                                  "--num-threads"));
    return report(error(ErrorCode::internal, "{}", e.what()));
  } catch (const std::exception& e) {
    return report(error(ErrorCode::internal, "{}", e.what()));
  }
}

// Blocks of this size or more go back to the system as soon as they are freed. By default glibc
// raises this limit, so memory that requests needed for a moment would stay with the process.
constexpr int kReturnedBytes = 1 << 20;

// Opens /dev/null in place of each standard file that is closed. Else the next file that is opened
// would take its number, and the log would be written into that file. Returns false on failure.
bool open_standard_files() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;
  return true;
}

// Threads get stacks of the size that `ulimit -s` names. Smaller ones than this overflow.
constexpr rlim_t kMinStackBytes = 512 << 10;

Result<void> check_stack_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kMinStackBytes) return {};
  return fail(error(ErrorCode::out_of_memory,
                    "stacks are limited to {} KiB, and hocket's threads need {}",
                    limit.rlim_cur >> 10, kMinStackBytes >> 10)
                  .with_fix("ulimit -s 8192"));
}

}  // namespace

int run_program(int argc, char** argv, std::span<const Command> of_program) {
  table = of_program;
  if (!open_standard_files())
    return report(error(ErrorCode::io, "a standard file is closed, and /dev/null cannot be opened")
                      .with_fix("open stdin, stdout and stderr, or provide /dev/null"));
  if (const Result<void> stack = check_stack_limit(); !stack) return report(stack.error());
  // If the reader of the output or the log goes away, writing fails and the process continues.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that reaches `ulimit -f` fails as on a full disk, with EFBIG.
  std::signal(SIGXFSZ, SIG_IGN);
  mallopt(M_MMAP_THRESHOLD, kReturnedBytes);
  watch_mapped_files();
  return dispatch_or_say_why(Arguments(argv + 1, argv + argc));
}

}  // namespace hocket
