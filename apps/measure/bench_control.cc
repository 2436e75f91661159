#include "apps/measure/bench_control.h"

#include "apps/flags.h"
#include "bench/control.h"

namespace hocket {

Result<int> control_command(const Arguments& arguments) {
  BenchControlOptions o;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "bench control",
                          .about = "what TLS costs between ranks: control messages and pages",
                          .groups = {{"Bench",
                                      {{"rounds", &o.rounds, "counted rounds", ""},
                                       {"json", &o.json, "one object a line", ""}}}},
                          .takes_config = false},
                         arguments));
  if (!go) return 0;
  if (o.rounds < 1 || o.rounds > 1000)
    return fail(ErrorCode::bad_value, "--rounds {} is not in 1 to 1000", o.rounds);
  return bench_control(o);
}

}  // namespace hocket
