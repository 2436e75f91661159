// Loads a model: engine, tokenizer and chat template of one folder, with a progress bar on stderr.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "apps/cluster_process.h"
#include "base/result.h"
#include "core/server_settings.h"
#include "engine/engine.h"
#include "text/tokens/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

struct LoadedModel {
  std::optional<Tokenizer> tokenizer;         // nullopt: the folder has no tokenizer.json
  std::optional<ChatTemplate> chat_template;  // nullopt: the folder has no template
  std::unique_ptr<Engine> engine;             // uses the tokenizer, so it is destroyed first
};

// Fills an empty settings.model.model_path with the bundled model's folder, and prints one line
// about it on stderr. Errors: model_not_found, if the bundled model is missing.
Result<void> choose_model(ServerSettings& settings);
// Loads tokenizer, chat template and engine, and logs each setting that the engine changed.
// `cluster` is this process as one of several ranks; it outlives the model. null: all ranks are in
// this process. Errors: those of Tokenizer::load, ChatTemplate::load, Engine::create.
Result<LoadedModel> load_model(const ServerSettings& settings, ClusterProcess* cluster = nullptr);

}  // namespace hocket
