// The command line as one table: each flag with its HOCKET_* variable, YAML key and help.
// Precedence: flag, variable, file, default. Foreign names (vLLM's, llama.cpp's) are refused with
// their translation.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

// A bool is a switch that takes no value on the command line. The range of a number is in
// core/setting_ranges.h.
using FlagTarget = std::variant<int*, int64_t*, uint64_t*, double*, bool*, std::string*,
                                std::vector<std::string>*>;

struct Flag {
  std::string
      name;  // "context-length": --context-length, HOCKET_CONTEXT_LENGTH, YAML key context-length
  FlagTarget target;
  std::string help;
  std::string short_name;  // "p": -p; empty: none
};

// A group of flags with a heading in --help.
struct FlagGroup {
  std::string heading;
  std::vector<Flag> flags;
};

// The flags of everything that runs a model.
std::vector<FlagGroup> settings_flags(ServerSettings& settings);
// The part of them that says which model and how to compute.
std::vector<FlagGroup> model_flags(ServerSettings& settings);
// The part of them that says how exchanges between ranks are hidden.
FlagGroup overlap_flags(ServerSettings& settings);

// Flags for the reading of answers: tool calls and thoughts.
FlagGroup answer_flags(ServerSettings& settings);
// Flags for logs, traces, dumps and metrics.
FlagGroup observe_flags(ServerSettings& settings);

struct CommandLine {
  std::string command;  // "serve", "bench serving"
  std::string about;    // first line of its help
  std::vector<FlagGroup> groups;
  bool takes_config = true;  // offers --config FILE
};

// Fills the targets from variables, file and arguments (without program and command name). Prints
// the help and returns false for --help, and for --help=FORM alone (flag_pages.h).
// Errors: unknown_flag (with the nearest name or the translation), bad_value (a number out of its
// range, too), io (the file).
Result<bool> parse_flags(const CommandLine& line, const std::vector<std::string>& arguments);

// Warns of each HOCKET_* variable that is near a setting's and none, and of those of other servers:
// a variable that nobody reads looks like a setting that was made.
void warn_of_variables(const std::vector<FlagGroup>& flags);

}  // namespace hocket
