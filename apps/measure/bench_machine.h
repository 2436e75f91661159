// hocket bench machine: its flags.
#pragma once

#include "apps/commands.h"
#include "base/result.h"

namespace hocket {

Result<int> machine_command(const Arguments& arguments);

}  // namespace hocket
