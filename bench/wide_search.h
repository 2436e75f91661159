// The best of all plans that could be played, for `hocket bench overlap`: what the planner's few
// candidates leave (compute/overlap/search.h). Pure; takes up to a second.
#pragma once

#include "compute/overlap/search.h"

namespace hocket {

// Returns the built-in orders and, behind them, all_two_half_orders().
const OrderTable& all_orders();
// Returns the plan with the least predicted time among all orders of the input's table, at every
// share, in all parts and waves.
Candidate best_of_all(const SearchInput& input);

}  // namespace hocket
