// hocket bench control: reads its flags and runs it.
#pragma once

#include "apps/commands.h"
#include "base/result.h"

namespace hocket {

Result<int> control_command(const Arguments& arguments);

}  // namespace hocket
