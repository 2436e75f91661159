// hocket demo: what overlap does on this machine, measured, and whether it changed a token.
#pragma once

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

// Two ranks of this process, joined by a pretended link, answer questions that come together: once
// with --overlap none, once with --overlap auto. Prints the plan and the share of the exchange that
// it hid, then whether all tokens and log-probabilities are the same. `settings` name the model.
// Errors: those of start_server and the client; internal: an answer differs.
Result<void> show_overlap(ServerSettings settings);

}  // namespace hocket
