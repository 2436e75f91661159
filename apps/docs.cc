// hocket docs flags | man | completion: prints pages about the flags of all commands, made from the
// tables that the commands use to parse them. hocket docs fields: prints the fields of requests'
// bodies as JSON.
#include <fmt/core.h>

#include <algorithm>

#include "apps/bench_program.h"
#include "apps/commands.h"
#include "base/log.h"
#include "core/version.h"
#include "server/accepted_fields.h"

namespace hocket {
namespace {

// Returns false for the two commands that have no table of flags.
bool takes_flags(const Command& command) {
  return command.name != "version" && command.name != "docs";
}

// Lets a command print its own flags in `form`; returns its exit status. bench prints those of all
// benches, and their names among the words.
int print_flags(const Command& command, const std::string& form) {
  const std::string help = "--help=" + form;
  return command.run != nullptr ? command.run({help}) : call_bench_program(command.name, {help});
}

int print_all_flags(const std::string& form) {
  int status = 0;
  for (const Command& command : commands())
    if (takes_flags(command)) status = std::max(status, print_flags(command, form));
  return status;
}

int flags() {
  fmt::print(
      "# Flags\n\n"
      "Every flag of every command, as `hocket COMMAND --help` shows them. This page is made by "
      "`hocket docs flags`.\n\n"
      "Each may also be a variable of the environment (`--context-length` is "
      "`HOCKET_CONTEXT_LENGTH`) and, where a command\n"
      "takes `--config FILE`, a key of that YAML file (`context-length: 8192`). A flag wins over a "
      "variable, a variable over\n"
      "the file. A switch takes no value on the command line, and `true` or `false` elsewhere. "
      "Names of other servers' flags\n"
      "are refused with the name that they have here.\n\n");
  return print_all_flags("markdown");
}

int man() {
  fmt::print(
      ".TH HOCKET 1 \"\" \"hocket {}\" \"User Commands\"\n"
      ".SH NAME\nhocket \\- inference server for Mixture\\-of\\-Experts language models\n"
      ".SH SYNOPSIS\n.B hocket\n.I COMMAND\n.RI [ FLAGS ]\n"
      ".SH DESCRIPTION\n"
      "Serves a language model of a Hugging Face folder over the OpenAI API, on CPUs, alone or on "
      "several hosts.\n"
      "Without \\-\\-model\\-path it serves the tiny model that comes with it.\n"
      ".SH COMMANDS\n",
      kVersion);
  for (const Command& command : commands())
    fmt::print(".TP\n.B {}\n{}.\n", command.name, command.about);
  fmt::print(".SH OPTIONS\n");
  const int status = print_all_flags("man");
  fmt::print(
      ".SH ENVIRONMENT\n"
      "Each flag may be a variable: \\-\\-context\\-length is HOCKET_CONTEXT_LENGTH.\n"
      "Flags win over variables, variables over the file of \\-\\-config.\n"
      ".SH FILES\n.TP\n.I /etc/hocket/hocket.yaml\nSettings of the system service.\n"
      ".SH EXIT STATUS\n"
      "0 success; 1 a check failed, or requests were cut off at the end; 2 usage; 3 model files; 4 "
      "memory; 5 a lost rank;\n"
      "6 the watchdog; 7 the port is in use.\n"
      ".SH EXAMPLES\n.nf\n"
      "hocket serve \\-\\-model\\-path /srv/models/Qwen3\\-30B\\-A3B \\-\\-port 30000\n"
      "hocket run \\-p 'What is 7 + 5?'\n.fi\n");
  return status;
}

// Prints a Bash completion: the first word is a command, later words are its flags or files.
int completion() {
  fmt::print(
      "# Completion of hocket for bash; made by `hocket docs completion`.\n"
      "_hocket() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} names=''\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '");
  for (const Command& command : commands()) fmt::print("{} ", command.name);
  fmt::print(
      "help' -- \"$word\"))\n    return\n  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n");
  int status = 0;
  for (const Command& command : commands()) {
    if (!takes_flags(command)) continue;
    fmt::print("    {})\n      names='\n", command.name);
    status = std::max(status, print_flags(command, "words"));
    fmt::print("      ' ;;\n");
  }
  fmt::print(
      "    docs) names='flags man completion fields' ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$names\" -- \"$word\"))\n"
      "}}\n"
      "complete -o default -F _hocket hocket\n");
  return status;
}

int fields() {
  log::set_level(log::Level::off);  // accepted_fields() tries parsers, which may log warnings
  fmt::print("{}\n", to_text(accepted_fields()));
  return 0;
}

}  // namespace

int docs(const Arguments& arguments) {
  const std::string page = arguments.size() == 1 ? arguments[0] : "";
  if (page == "fields") return fields();
  if (page == "flags" || page == "man" || page == "completion") {
    // It prints its own flags. Without it the page would end before them.
    if (const Result<void> there = check_bench_program("docs " + page); !there)
      return report(there.error());
    return page == "flags" ? flags() : page == "man" ? man() : completion();
  }
  return report(
      error(ErrorCode::usage, "which page? hocket docs prints flags, man, completion or fields")
          .with_fix("hocket docs flags > docs/flags.md"));
}

}  // namespace hocket
