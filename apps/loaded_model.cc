#include "apps/loaded_model.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "compute/weights/progress_bar.h"
#include "engine/grammar/grammar_trials.h"
#include "text/tokens/files.h"

namespace hocket {
namespace {

constexpr const char* kBundledModel = "models/hocket-tiny-qwen3-moe";

// Returns the folder of the bundled model. The program is build/PRESET/hocket in a checkout, or
// bin/hocket beside share/hocket in an installation. Errors: model_not_found.
Result<std::filesystem::path> bundled_model() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path folder = program.parent_path();
  for (const std::filesystem::path& root :
       {folder / ".." / "..", folder / ".." / "share" / "hocket"})
    if (std::filesystem::exists(root / kBundledModel / "config.json", ignored))
      return std::filesystem::weakly_canonical(root / kBundledModel, ignored);
  return fail(error(ErrorCode::model_not_found, "the bundled model {} is not beside {}",
                    kBundledModel, program.string())
                  .with_fix("--model-path DIR"));
}

}  // namespace

Result<void> choose_model(ServerSettings& settings) {
  if (!settings.model.model_path.empty()) return {};
  HOCKET_TRY(const std::filesystem::path folder, bundled_model());
  settings.model.model_path = folder.string();
  fmt::print(stderr, "no --model-path given: using the bundled model {}\n",
             folder.filename().string());
  return {};
}

Result<LoadedModel> load_model(const ServerSettings& settings, ClusterProcess* cluster) {
  LoadedModel model;
  const std::filesystem::path folder = settings.model.tokenizer_path.empty()
                                           ? settings.model.model_path
                                           : settings.model.tokenizer_path;
  if (has_model_file(folder, "tokenizer.json")) {
    HOCKET_TRY(model.tokenizer, Tokenizer::load(folder));
    if (settings.model.chat_template.empty()) {
      HOCKET_TRY(model.chat_template, ChatTemplate::load(folder, *model.tokenizer));
    } else {
      HOCKET_TRY(model.chat_template,
                 ChatTemplate::from_file(settings.model.chat_template, *model.tokenizer));
    }
  }
  Engine::Options options{.settings = settings};
  if (model.tokenizer) {
    options.tokenizer_size = model.tokenizer->vocab_size();
    options.tokenizer_eos = model.tokenizer->eos_id();
    options.grammars = {.tokenizer = model.tokenizer->handle(), .folder = folder};
    options.grammar_trials = {"/proc/self/exe", std::string(kGrammarTrialsCommand)};
  }
  std::optional<ProgressBar> bar;
  const bool shows = cluster == nullptr || cluster->shows_own_loading();
  const bool draws = settings.observe.log_format == "text" && log::enabled(log::Level::warning);
  if (shows && draws) bar.emplace("weights");
  if (cluster != nullptr) options.cluster = cluster->launch();
  options.progress = [&](const LoadProgress& progress) {
    if (bar) bar->update(progress);
    if (cluster != nullptr) cluster->log_loading();
  };
  HOCKET_TRY(model.engine, Engine::create(std::move(options)));
  for (const SettingChange& change : model.engine->info().changes)
    log::warning("changed: {} {} -> {} because {}", change.flag, change.from, change.to,
                 change.why);
  for (const std::string& note : model.engine->info().notes) log::info("note: {}", note);
  if (!model.tokenizer)
    log::warning("{} has no tokenizer.json: only /generate with input_ids works", folder.string());
  return model;
}

}  // namespace hocket
