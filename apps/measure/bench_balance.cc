#include "apps/measure/bench_balance.h"

#include "apps/flags.h"
#include "bench/balance_sources.h"
#include "core/setting_ranges.h"

namespace hocket {

Result<int> balance_command(const Arguments& arguments) {
  BenchBalanceOptions o;
  HOCKET_TRY(
      const bool go,
      parse_flags({.command = "bench balance",
                   .about = "how evenly experts are spread over ranks, by each algorithm",
                   .groups = {{"Bench",
                               {{"experts", &o.num_experts, "experts of a layer", ""},
                                {"layers", &o.num_layers, "layers whose means are printed", ""},
                                {"by-source", &o.by_source,
                                 "instead compares placements that put experts near the rows that "
                                 "choose them",
                                 ""},
                                {"json", &o.json, "prints JSON, one object a line", ""}}}},
                   .takes_config = false},
                  arguments));
  if (!go) return 0;
  HOCKET_TRY_VOID(check_number("experts", o.num_experts, {8, 1024}));
  if (o.num_experts % 8 != 0)
    return fail(
        error(ErrorCode::bad_value, "--experts is {}, must be a multiple of 8", o.num_experts)
            .with_param("experts")
            .with_fix("--experts 256"));
  HOCKET_TRY_VOID(check_number("layers", o.num_layers, {1, 1000}));
  return o.by_source ? bench_balance_by_source(o) : bench_balance(o);
}

}  // namespace hocket
