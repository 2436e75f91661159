// All orders of two halves worth comparing, beyond those with names: what the executor could play.
// The server does not search them; `hocket bench overlap --search` does (wide_search.h).
#pragma once

#include <vector>

#include "compute/overlap/order.h"

namespace hocket {

// Returns every legal order of two halves in which each transfer starts as soon as its data are
// there and is waited for only when its rows are needed; so they differ in the sequence of
// computing alone. If two differ only in the halves' names, the one in which half a leads by less
// is taken. There are 288, always in the same sequence, named "found-0000" and on.
std::vector<Order> all_two_half_orders();

}  // namespace hocket
