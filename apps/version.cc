#include <fmt/core.h>

#include "apps/commands.h"
#include "base/machine.h"
#include "server/version.h"

namespace hocket {

int version(const Arguments&) {
  fmt::print("hocket {}\ncompiler {}\nmachine {}\n", kVersion, __VERSION__,
             describe(inspect_machine()));
  return 0;
}

}  // namespace hocket
