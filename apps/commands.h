// The commands of the two programs, hocket and hocket-bench. Each takes its arguments (without
// program and command name) and returns the exit status: 0 success, 1 a check or test failed, 2
// usage, 3 model files, 4 memory, 5 lost rank, 6 watchdog, 7 port in use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

using Arguments = std::vector<std::string>;

int serve(const Arguments& arguments);
int demo(const Arguments& arguments);
int run(const Arguments& arguments);
int check(const Arguments& arguments);
int plan(const Arguments& arguments);
int bench(const Arguments& arguments);
int simulate(const Arguments& arguments);
int trace(const Arguments& arguments);
int replay(const Arguments& arguments);
int top(const Arguments& arguments);
int crash(const Arguments& arguments);
int doctor(const Arguments& arguments);
int docs(const Arguments& arguments);
int version(const Arguments& arguments);

struct Command {
  std::string_view name, about;
  int (*run)(const Arguments&);  // null: hocket-bench runs it
};
// Returns this program's commands in the order of `hocket help`.
std::span<const Command> commands();

// Prints the error as the last lines on stderr and returns its exit status.
int report(const Error& e);

}  // namespace hocket
