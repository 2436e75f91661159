// Names, for the `changed:` lines of the start, what loading weights changes by itself. Thread:
// engine.
#pragma once

#include <vector>

#include "base/result.h"
#include "compute/weights/loader.h"
#include "compute/weights/weight_source.h"
#include "core/server_settings.h"
#include "engine/plan/model_choice.h"

namespace hocket {

// Returns true if the files hold the modules for multi-token prediction that are to be loaded.
bool holds_modules(const ModelConfig& model, const WeightSource& files);
// Makes `model` one without such modules, as its files are, so that drafts come from the text.
// Errors: missing_tensor, if --speculative-algorithm asks for the modules.
Result<SettingChange> leave_modules(const SpeculationSettings& settings, ModelConfig& model);

// Returns what became of the weights that `loader` loaded from `files` (null: random ones).
std::vector<SettingChange> weight_changes(const ModelChoice& choice, const WeightLoader& loader,
                                          const WeightSource* files);

}  // namespace hocket
