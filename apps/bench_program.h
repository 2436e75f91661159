// The program hocket-bench, which lies beside this one and runs the commands that measure.
#pragma once

#include <string_view>

#include "apps/commands.h"

namespace hocket {

// Errors: io if hocket-bench, which `hocket COMMAND` needs, is not there.
Result<void> check_bench_program(std::string_view command);

// Replaces this process by `hocket-bench COMMAND ARGUMENTS`. Returns only if that fails: prints the
// error and returns its exit status.
int exec_bench_program(std::string_view command, const Arguments& arguments);

// Runs the same as a child with this process's standard files, and returns its exit status.
int call_bench_program(std::string_view command, const Arguments& arguments);

}  // namespace hocket
