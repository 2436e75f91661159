// Says whether the prefix cache keeps answers under --mla-form, and what it costs prompts. Pure,
// except that it reads the tokenizer's file.
// Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/server_settings.h"
#include "engine/plan/cost.h"
#include "policy/scheduler/absorbed_rows.h"

namespace hocket {

// Returns false if prompts use the expanded form and answers the absorbed one (arithmetic.md §5):
// then an answer's pages hold other numbers than a prompt's would, and the cache leaves them out.
bool caches_answers(const ModelConfig& model, TokenRole prompt_role);

// Begins a value of --mla-form that lists the ids behind which an answer follows.
inline constexpr std::string_view kAnswersForm = "answers:";

// Returns the ids behind which the model's chat format has an answer (AbsorbedRows): those that
// --mla-form lists, or with `auto` those that the tokenizer has among the known ones. Empty with
// `roles`. Precondition: the model has latents.
// Errors: bad_value (no list of ids, too many of them, an id that the model does not have).
Result<std::vector<TokenId>> choose_answer_begins(const ServerSettings& settings,
                                                  const ModelConfig& model);

// Length, in tokens, of the prompt with which the two forms are compared.
inline constexpr int kComparedPromptLen = 4096;
// Returns the operations of that prompt in the absorbed form, divided by those in the expanded
// form. Precondition: the model has latents.
double absorbed_cost_ratio(const ModelCost& cost);

// Returns the most entries of a batch's sequences: the prompt and the answer of each request, and
// each run of rows whose form AbsorbedRows chooses.
constexpr int max_sequences(int rows, int requests) {
  return 4 * requests + 2 * rows / kRowsBehindAnAnswer;
}

struct LatentForm {
  std::optional<SettingChange> change;  // set if `auto` became `absorbed`
  std::string note;                     // why answers are not cached; empty: they are
};
// Errors: those of ModelCost::measure.
Result<LatentForm> describe_latents(const ServerSettings& settings, const ModelChoice& choice);

}  // namespace hocket
