#include "engine/grammar_setup.h"

#include <algorithm>
#include <utility>

#include "compute/weights/hf_config.h"

namespace hocket {

Result<GrammarSetup> set_up_grammars(const Engine::Options& options) {
  GrammarSetup setup;
  const std::string& backend = options.settings.model.grammar_backend;
  if (backend != "llguidance" && backend != "none")
    return fail(
        error(ErrorCode::bad_value, "--grammar-backend {} is not one of llguidance, none", backend)
            .with_param("grammar-backend"));
  if (!options.grammars)
    setup.why_none = "the model folder has no tokenizer.json";
  else if (backend == "none")
    setup.why_none = "it was started with --grammar-backend none";
  if (!setup.why_none.empty()) return setup;
  HOCKET_TRY(const ModelConfig model, read_hf_config(options.settings.model.model_path));
  setup.why_none = tokenizer_misfit(options.tokenizer_size, model.vocab_size);
  if (!setup.why_none.empty()) return setup;
  std::vector<TokenId> ends = model.eos_ids;
  if (options.tokenizer_eos && std::ranges::find(ends, *options.tokenizer_eos) == ends.end())
    ends.push_back(*options.tokenizer_eos);
  setup.compiler =
      std::make_unique<GrammarCompiler>(GrammarCompiler::Options{.source = *options.grammars,
                                                                 .num_logits = model.vocab_size,
                                                                 .end_ids = std::move(ends),
                                                                 .trials = options.grammar_trials});
  return setup;
}

}  // namespace hocket
