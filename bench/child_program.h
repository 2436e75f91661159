// Runs another program as a child process to its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct ProgramRun {
  std::string out, err;  // all of its stdout and stderr
  double seconds = 0;
  int64_t peak_resident_bytes = 0;  // the most memory it held, with pages of mapped files
};

// Runs `command` (path and arguments; no shell) and waits for its end. The child is killed if this
// process ends. Errors: io, with the last lines it printed, if it cannot be started or its exit
// status is not 0.
Result<ProgramRun> run_program(const std::vector<std::string>& command);

// Returns the path of this program.   Errors: io.
Result<std::string> own_path();

}  // namespace hocket
