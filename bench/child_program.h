// Another program as a child of this one, run to its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct ProgramRun {
  std::string out, err;  // what it printed
  double seconds = 0;
  int64_t peak_resident_bytes = 0;  // the most memory it held, file pages that it had mapped too
};

// Runs `command` (path and arguments; no shell) and waits for its end. It dies with this process.
// Errors: io, when it cannot be started or does not end with 0, with the last of what it printed.
Result<ProgramRun> run_program(const std::vector<std::string>& command);

// The path of the running program.   Errors: io.
Result<std::string> own_path();

}  // namespace hocket
