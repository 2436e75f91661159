// hocket COMMAND [arguments]: finds the command and runs it.
#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "apps/commands.h"
#include "base/mapped_files.h"
#include "base/nearest.h"
#include "engine/grammar/grammar_trials.h"

namespace hocket {
namespace {

constexpr std::array kCommands = {
    Command{"serve", "OpenAI-compatible server", serve},
    Command{"demo", "serve the bundled model and ask it a question", demo},
    Command{"run", "one prompt, or a chat in the terminal, without a server", run},
    Command{"check", "compare the engine with reference outputs", check},
    Command{"plan", "what fits and how fast it would be, from config.json alone", plan},
    Command{"bench", "kernels | one-batch | serving | scheduler", bench},
    Command{"simulate", "traffic through the real scheduler in virtual time", simulate},
    Command{"trace", "a profile of /start_profile as text; several as one", trace},
    Command{"replay", "requests of a dump again, against a server or in virtual time", replay},
    Command{"top", "a live view of a server", top},
    Command{"crash", "what --crash-dump-folder kept of a crash", crash},
    Command{"doctor", "what this machine offers, and what to change", doctor},
    Command{"docs", "flags | man | completion | fields: pages made from tables of the code", docs},
    Command{"version", "version, compiler, instruction sets", version},
};

void print_help() {
  fmt::print("hocket: an inference server for Mixture-of-Experts language models\n\n");
  for (const Command& command : kCommands)
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
  for (const Command& command : kCommands) {
    if (command.name == arguments[0])
      return command.run(Arguments(arguments.begin() + 1, arguments.end()));
    names.push_back(command.name);
  }
  Error unknown = error(ErrorCode::usage, "{} is not a command of hocket", arguments[0]);
  const auto near = nearest_name(arguments[0], names);
  unknown.fix = near ? fmt::format("hocket {}?", *near) : "hocket help lists them";
  return report(unknown);
}

}  // namespace

std::span<const Command> commands() {
  return kCommands;
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

}  // namespace
}  // namespace hocket

int main(int argc, char** argv) {
  if (!hocket::open_standard_files())
    return hocket::report(hocket::error(hocket::ErrorCode::io,
                                        "a standard file is closed, and /dev/null cannot be opened")
                              .with_fix("open stdin, stdout and stderr, or provide /dev/null"));
  // If the reader of the output or the log goes away, writing fails and the process goes on.
  std::signal(SIGPIPE, SIG_IGN);
  // A file that reaches `ulimit -f` fails as on a full disk, with EFBIG.
  std::signal(SIGXFSZ, SIG_IGN);
  mallopt(M_MMAP_THRESHOLD, hocket::kReturnedBytes);
  hocket::watch_mapped_files();
  return hocket::dispatch_or_say_why(hocket::Arguments(argv + 1, argv + argc));
}
