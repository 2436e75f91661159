// A model ready to talk: engine, tokenizer and chat template of one folder, loaded with progress on
// stderr.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "apps/cluster_process.h"
#include "base/result.h"
#include "core/server_settings.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hocket {

struct LoadedModel {
  std::optional<Tokenizer> tokenizer;         // none: the folder has no tokenizer.json
  std::optional<ChatTemplate> chat_template;  // none: the folder has no template
  std::unique_ptr<Engine> engine;             // uses the tokenizer to its end
};

// Fills settings.model.model_path with the bundled model's folder when it is empty, and says so in
// one line. Errors: model_not_found when the bundled model is missing.
Result<void> choose_model(ServerSettings& settings);
// `cluster`: this process as one of several ranks, which outlives the model; null: it is alone.
// Errors: those of Tokenizer::load, ChatTemplate::load, Engine::create. Announces what the engine
// changed by itself.
Result<LoadedModel> load_model(const ServerSettings& settings, ClusterProcess* cluster = nullptr);

}  // namespace hocket
