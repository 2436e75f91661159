// Says whether the prefix cache keeps answers under --mla-form, and what it costs prompts. Pure,
// except that it reads the tokenizer's file.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/server_settings.h"
#include "engine/plan/cost.h"
#include "policy/scheduler/absorbed_rows.h"

namespace hocket {

// Returns true if all rows have one form (arithmetic.md §5), so that the cache takes whole answers.
// If false, it takes of an answer only what AbsorbedRows makes equal to a prompt.
bool caches_whole_answers(const ModelConfig& model, MlaForm prompt_form);

// A value of --mla-form with this beginning lists the ids that open an answer.
inline constexpr std::string_view kAnswersPrefix = "answers:";

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

// Returns the most entries of a batch's sequences: two for each request, its prompt and its answer;
// two more for runs of one form that its slice cuts; and two for each kRowsFromAnswerEnd rows,
// because no whole absorbed run has fewer.
constexpr int max_sequences(int num_rows, int num_requests) {
  return 4 * num_requests + 2 * num_rows / kRowsFromAnswerEnd;
}

struct LatentForm {
  std::optional<SettingChange> change;  // set if `auto` became `absorbed`
  std::string note;                     // why answers are not cached; empty: they are
};
// Errors: those of ModelCost::measure.
Result<LatentForm> describe_latents(const ServerSettings& settings, const ModelChoice& choice);

}  // namespace hocket
