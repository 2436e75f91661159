// Says why a gate chooses a number of drafts. Pure.
#pragma once

#include <string>

#include "policy/speculation/gate_state.h"

namespace hocket {

// Returns "4 answers, 1024 keys each: 4 drafts, 1.62 tokens an answer for 1.21 times the time", or
// why there are none. is_fixed: a flag sets the number.
std::string text_of(const GateState::Size& size, bool is_fixed);

}  // namespace hocket
