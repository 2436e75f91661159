#include "apps/measure/bench_machine.h"

#include "apps/flags.h"
#include "bench/machine.h"

namespace hocket {

Result<int> machine_command(const Arguments& arguments) {
  BenchMachineOptions o;
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "bench machine",
           .about = "kernels, whole models, scheduler and overlap on this machine, "
                    "as tables in Markdown",
           .groups = {{"Bench",
                       {{"shape", &o.shape, "shape of the models that passes are timed with", ""},
                        {"rounds", &o.rounds, "number of times that each pass is timed", ""},
                        {"quick", &o.quick, "fewer passes, no overlap", ""}}}},
           .takes_config = false},
          arguments));
  return go ? bench_machine(o) : 0;
}

}  // namespace hocket
