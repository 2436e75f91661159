#include "apps/measure/bench_control.h"

#include "apps/flags.h"
#include "bench/control.h"
#include "core/setting_ranges.h"

namespace hocket {

Result<int> control_command(const Arguments& arguments) {
  BenchControlOptions o;
  HOCKET_TRY(const bool go,
             parse_flags({.command = "bench control",
                          .about = "what TLS costs between ranks: control messages and pages",
                          .groups = {{"Bench",
                                      {{"rounds", &o.rounds, "counted rounds", ""},
                                       {"json", &o.json, "prints JSON, one object a line", ""}}}},
                          .takes_config = false},
                         arguments));
  if (!go) return 0;
  HOCKET_TRY_VOID(check_number("rounds", o.rounds, {1, 1000}));
  return bench_control(o);
}

}  // namespace hocket
