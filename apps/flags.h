// The command line as one table: each flag has a HOCKET_* variable, a YAML key and a help text.
// A flag wins over a variable, a variable over the file, the file over the default. Names of other
// servers' flags (vLLM, llama.cpp) are refused with an error that names hocket's flag.
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
  // "context-length" is --context-length, HOCKET_CONTEXT_LENGTH and the YAML key context-length.
  std::string name;
  FlagTarget target;
  std::string help;
  std::string short_name;  // "p" is -p; empty: none
  // True if the ranks of a service must have one value, because they compare what follows from it
  // (engine/lockstep/identity.cc, Runner::terms()): a rank that joins takes it from the service.
  bool shared_by_ranks = false;
};

// A group of flags with a heading in --help.
struct FlagGroup {
  std::string heading;
  std::vector<Flag> flags;
};

// Returns all flags of serve. The functions below return parts of them.
std::vector<FlagGroup> settings_flags(ServerSettings& settings);
// Returns the flags of every command that runs a model: model, memory, scheduler, CPU, ranks.
std::vector<FlagGroup> model_flags(ServerSettings& settings);
// Returns the flags for hiding exchanges between ranks.
FlagGroup overlap_flags(ServerSettings& settings);
// Returns the flags for guessing tokens.
FlagGroup speculation_flags(ServerSettings& settings);
// Returns the flags for memory, and for prefixes in files.
FlagGroup memory_flags(ServerSettings& settings);
// Returns the flags for prefixes of other services.
FlagGroup peer_flags(ServerSettings& settings);

// Returns the flags for the port, its keys, limits and time-outs.
FlagGroup http_flags(ServerSettings& settings);
// Returns the flags for parsing tool calls and reasoning in answers.
FlagGroup answer_flags(ServerSettings& settings);
// Returns the flags for logs, traces, dumps and metrics.
FlagGroup observe_flags(ServerSettings& settings);

struct CommandLine {
  std::string command;  // "serve", "bench serving"
  std::string about;    // first line of its help
  std::vector<FlagGroup> groups;
  bool takes_config = true;  // offers --config FILE
};

// Fills the targets from variables, file and arguments (without program and command name). Returns
// true if the command shall run; prints the help and returns false for --help, and for --help=FORM
// as the only argument (flag_docs.h).
// Errors: unknown_flag (with the nearest name, or hocket's name for another server's flag),
// bad_value (also for a number out of its range), io (the file).
Result<bool> parse_flags(const CommandLine& line, const std::vector<std::string>& arguments);

// Warns of each HOCKET_* variable whose name is nearly that of a setting, and of each variable of
// another server: hocket ignores them, so the user would believe in settings that have no effect.
void warn_of_variables(const std::vector<FlagGroup>& flags);

}  // namespace hocket
