// hocket bench speculation: reads its flags and runs it.
#pragma once

#include "apps/commands.h"
#include "base/result.h"

namespace hocket {

Result<int> speculation_command(const Arguments& arguments);

}  // namespace hocket
