// Says what --mla-form means for the prefix cache and for prompts, with its price. Pure. Thread:
// any.
#pragma once

#include <optional>
#include <string>

#include "core/server_settings.h"
#include "engine/plan/cost.h"

namespace hocket {

// Returns false if prompts expand the latents that answers absorb: then pages of answers hold other
// numbers than a prompt would have there, and the prefix cache leaves them out.
bool caches_answers(const ModelConfig& model, TokenRole prompt_role);

// The tokens of the prompt that prices are for.
inline constexpr int kPricedPrompt = 4096;
// Returns how many times the operations of expanded prompts absorbed ones need.
// Precondition: the model has latents.
double absorbed_price(const ModelCost& cost);

struct LatentForm {
  std::optional<SettingChange> change;  // `auto` came to mean `absorbed`
  std::string note;                     // answers are not cached; empty: they are
};
// Errors: those of ModelCost::measure.
Result<LatentForm> describe_latents(const ServerSettings& settings, const ModelChoice& choice);

}  // namespace hocket
