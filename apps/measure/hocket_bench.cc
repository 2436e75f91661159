// hocket-bench COMMAND [arguments]: the commands that measure. `hocket` starts it
// (bench_program.h), so that who only serves need not compile them.
#include <array>

#include "apps/program.h"

namespace hocket {
namespace {

constexpr std::array kCommands = {
    Command{"bench", "kernels | one-batch | serving | scheduler", bench},
    Command{"simulate", "traffic through the real scheduler in virtual time", simulate},
    Command{"replay", "requests of a dump again, against a server or in virtual time", replay},
    Command{"serve", "the server that benches measure", serve},
};

}  // namespace
}  // namespace hocket

int main(int argc, char** argv) {
  return hocket::run_program(argc, argv, hocket::kCommands);
}
