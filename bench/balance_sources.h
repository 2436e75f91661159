// Measures what experts next to the rows that choose them would save, where ranks have rows of
// their own kind: the step time after a search that counts the exchange, beside that of `auto`.
#pragma once

#include "bench/balance.h"

namespace hocket {

int bench_balance_by_source(const BenchBalanceOptions& options);

}  // namespace hocket
