// The part of hocket demo that measures overlap on this machine and checks that it changes no
// token.
#pragma once

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

// Starts two services of two ranks in this process, joined by a modelled link: one with --overlap
// none, one with --overlap auto. Both answer the same questions. Prints the plan, the share of the
// exchange that it hid, and the result of comparing all tokens and log-probabilities. `settings`
// name the model.
// Errors: those of start_server and the client; internal: an answer differs.
Result<void> show_overlap(ServerSettings settings);

}  // namespace hocket
