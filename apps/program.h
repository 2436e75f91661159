// The start of a program that is a table of commands: it finds the command, runs it and prints its
// error.
#pragma once

#include <span>

#include "apps/commands.h"

namespace hocket {

// Runs the command that argv[1] names and returns the exit status (commands.h). commands() returns
// `of_program` from then on.
int run_program(int argc, char** argv, std::span<const Command> of_program);

}  // namespace hocket
