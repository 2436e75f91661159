// The part of hocket demo that shows what drafts of the bundled model's own layer gain, and checks
// that they change no token.
#pragma once

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

// Starts two services of one rank and one thread in this process, one with --speculative-algorithm
// none, one with NEXTN. Both answer the same question in turn. Prints the tokens of a step, the
// share of drafts that were accepted, the speed of both, and the result of comparing all tokens and
// log-probabilities. `settings` name the model.
// Errors: those of start_server and the client; internal: an answer differs.
Result<void> show_speculation(ServerSettings settings);

}  // namespace hocket
