#include <fmt/core.h>

#include "apps/commands.h"
#include "base/machine.h"
#include "compute/comm/ucx_transport.h"
#include "core/version.h"

namespace hocket {

int version(const Arguments&) {
  const Result<std::string> ucx = ucx_version();
  fmt::print("hocket {}\ncompiler {}\nmachine {}\nucx {}\n", kVersion, __VERSION__,
             describe(inspect_machine()), ucx ? *ucx : ucx.error().message);
  return 0;
}

}  // namespace hocket
