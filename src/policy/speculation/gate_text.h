// Says why a gate chooses a number of drafts. Pure.
#pragma once

#include <string>

#include "policy/speculation/gate_state.h"

namespace hocket {

// Returns "4 answers of up to 1024 tokens: 4 drafts give 1.62 tokens an answer in 1.21 times the
// time of a step without", or why there are none. is_fixed: a flag sets the number.
std::string text_of(const GateState::Bucket& bucket, bool is_fixed);

}  // namespace hocket
