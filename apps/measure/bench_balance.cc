#include "apps/measure/bench_balance.h"

#include "apps/flags.h"
#include "bench/balance.h"

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
                                {"json", &o.json, "one object a line", ""}}}},
                   .takes_config = false},
                  arguments));
  if (!go) return 0;
  if (o.num_experts < 8 || o.num_experts > 1024 || o.num_experts % 8 != 0)
    return fail(ErrorCode::bad_value, "--experts {} is no multiple of 8 in 8 to 1024",
                o.num_experts);
  if (o.num_layers < 1 || o.num_layers > 1000)
    return fail(ErrorCode::bad_value, "--layers {} is not in 1 to 1000", o.num_layers);
  return bench_balance(o);
}

}  // namespace hocket
