// Makes a rank's identity before anything is loaded: ranks that would compute other bits, or could
// not read each other's messages, refuse each other at once (cluster/member.h compares;
// docs/contracts/expert_parallel.md, "Launch and membership").
// Thread: any.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/launch.h"
#include "cluster/member.h"
#include "core/server_settings.h"

namespace hocket {

// Reads the folder's small files completely; of each tensor it hashes name, type, shape and
// samples, or all of a small one, so that two checkpoints of one model differ. Errors: those of
// choose_model_form and open_model_weights; io.
Result<Identity> make_identity(const ServerSettings& settings, const Launch& launch);

// Returns in words what the bits of keys and values depend on, beside tokens and places: the
// model and the arithmetic. `model`: hashes of its files. Errors: those of make_identity().
Result<std::string> describe_bits(const ServerSettings& settings, const std::string& model);

}  // namespace hocket
