// What a rank says of itself when it joins, before anything is loaded: ranks that would not compute
// the same, or would not understand each other's messages, refuse each other at once
// (cluster/member.h compares; docs/contracts/expert_parallel.md, "Launch and membership").
// Thread: any.
#pragma once

#include "base/result.h"
#include "cluster/launch.h"
#include "cluster/member.h"
#include "core/server_settings.h"

namespace hocket {

// Reads the folder's small files whole; of the weights' files the names, sizes, headers and a few
// samples: what two checkpoints of one model differ in, without reading them.
// Errors: those of choose_model_form; io.
Result<Identity> make_identity(const ServerSettings& settings, const LaunchPlan& plan);

}  // namespace hocket
