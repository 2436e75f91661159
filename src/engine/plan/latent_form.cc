#include "engine/plan/latent_form.h"

#include <fmt/format.h>

namespace hocket {
namespace {

// Only files know the format of each matrix, and a count of operations does not depend on it.
ModelChoice without_formats(ModelChoice choice) {
  choice.model.quant = {};
  choice.model.num_mtp_layers = choice.model.num_mtp_loaded = 0;
  choice.quantize = WeightFormat::bf16;
  choice.headers = nullptr;
  return choice;
}

}  // namespace

bool caches_answers(const ModelConfig& model, TokenRole prompt_role) {
  return model.mla.kv_rank == 0 || prompt_role == TokenRole::generated;
}

double absorbed_cost_ratio(const ModelCost& cost) {
  PassShape pass = cost.prefill(kComparedPromptLen, 0);
  pass.role = TokenRole::prompt;
  const double expanded = cost.operations(pass).all();
  pass.role = TokenRole::generated;
  return cost.operations(pass).all() / expanded;
}

Result<LatentForm> describe_latents(const ServerSettings& settings, const ModelChoice& choice) {
  LatentForm form;
  if (choice.model.mla.kv_rank == 0 || settings.compute.mla_form != "auto") return form;
  HOCKET_TRY(const ModelCost cost, ModelCost::measure(without_formats(choice)));
  const std::string price =
      fmt::format("a prompt of {} tokens takes {:.2f} times the operations of the expanded form",
                  kComparedPromptLen, absorbed_cost_ratio(cost));
  if (choice.prompt_role == TokenRole::generated)
    form.change = {.flag = "--mla-form",
                   .from = "auto",
                   .to = "absorbed",
                   .why =
                       "beside delta nets a prefix may end inside an answer, whose rows are "
                       "absorbed; " +
                       price};
  else if (!settings.scheduler.disable_radix_cache)
    form.note =
        "--mla-form auto: the prefix cache keeps no answers, so each turn of a conversation "
        "computes the answer before it again; --mla-form absorbed keeps them, and " +
        price;
  return form;
}

}  // namespace hocket
