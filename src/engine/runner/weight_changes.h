// Names, for the `changed:` lines of the start, what loading weights changes by itself. Thread:
// engine.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "compute/weights/loader.h"
#include "compute/weights/weight_source.h"
#include "core/server_settings.h"
#include "engine/plan/model_choice.h"

namespace hocket {

// Returns how many of the modules for multi-token prediction that are to be loaded the files hold.
int num_held_modules(const ModelConfig& model, const WeightSource& files);
// Makes `model` one with the first `num_held` of such modules, as its files are. Without any,
// drafts come from the text. Errors: missing_tensor, if --speculative-algorithm asks for modules,
// and there are none.
Result<SettingChange> leave_modules(const SpeculationSettings& settings, int num_held,
                                    ModelConfig& model);

// Returns the changes that `loader` made to the weights of `files` (null: random ones).
std::vector<SettingChange> weight_changes(const ModelChoice& choice, const WeightLoader& loader,
                                          const WeightSource* files);

// Returns what the blocks of the GGUF file of `settings` are in memory, and what that costs;
// nothing for other files. The header of the file is enough. Errors: those of GgufFile::open().
Result<std::vector<SettingChange>> file_changes(const ModelChoice& choice,
                                                const ModelSettings& settings);

}  // namespace hocket
