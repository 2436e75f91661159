// Says whether the prefix cache keeps answers under --mla-form, and what it costs prompts. Pure.
// Thread: any.
#pragma once

#include <optional>
#include <string>

#include "core/server_settings.h"
#include "engine/plan/cost.h"

namespace hocket {

// Returns false if prompts use the expanded form and answers the absorbed one (arithmetic.md §5):
// then an answer's pages hold other numbers than a prompt's would, and the cache leaves them out.
bool caches_answers(const ModelConfig& model, TokenRole prompt_role);

// Length, in tokens, of the prompt with which the two forms are compared.
inline constexpr int kComparedPromptLen = 4096;
// Returns the operations of that prompt in the absorbed form, divided by those in the expanded
// form. Precondition: the model has latents.
double absorbed_cost_ratio(const ModelCost& cost);

struct LatentForm {
  std::optional<SettingChange> change;  // set if `auto` became `absorbed`
  std::string note;                     // why answers are not cached; empty: they are
};
// Errors: those of ModelCost::measure.
Result<LatentForm> describe_latents(const ServerSettings& settings, const ModelChoice& choice);

}  // namespace hocket
