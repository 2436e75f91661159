// hocket-bench COMMAND [arguments]: the commands that measure. `hocket` starts it
// (bench_program.h), so that a build that only serves does not compile them.
#include <array>

#include "apps/program.h"

namespace hocket {
namespace {

constexpr std::array kCommands = {
    Command{"bench", "measure speed: kernels, one-batch, serving, scheduler and others", bench},
    Command{"simulate", "run the real scheduler in virtual time, on recorded or random requests",
            simulate},
    Command{"replay", "send the requests of a dump again, to a server or in virtual time", replay},
    Command{"serve", "start the server that benches measure", serve},
};

}  // namespace
}  // namespace hocket

int main(int argc, char** argv) {
  return hocket::run_program(argc, argv, hocket::kCommands);
}
