#include "engine/lockstep/identity.h"

#include <fmt/format.h>

#include "core/version.h"
#include "engine/lockstep/model_hash.h"
#include "engine/lockstep/overlap_settings.h"
#include "engine/lockstep/sha256.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/model_choice.h"

namespace hocket {
namespace {

// Rises if a release computes other bits, or exchanges other messages, than the one before.
constexpr int kArithmeticLevel = 5;

// Describes the steps that all ranks may run: orders, places of experts, limits of prompts and
// answers, and modules whose passes all ranks play. Limits that are planned from memory are
// compared later, when they are known.
Result<std::string> describe_plans(const ServerSettings& s) {
  HOCKET_TRY(const OverlapSettings overlap, choose_overlap(s.parallel));
  HOCKET_TRY(const ModelChoice choice, choose_model_form(s));
  std::string experts = s.parallel.init_expert_location;
  if (experts != "trivial") {
    Sha256 sum;
    HOCKET_TRY_VOID(sum.add_file(experts));
    experts = sum.digits();
  }
  experts += fmt::format(", {} replicas, placed by {}", s.parallel.ep_num_redundant_experts,
                         s.parallel.eplb_algorithm);
  if (s.parallel.enable_eplb)
    experts += fmt::format(", looked at every {} steps", s.parallel.eplb_rebalance_num_iterations);
  if (s.parallel.tolerate_ranks > 0)
    experts += fmt::format(", {} ranks may be missing", s.parallel.tolerate_ranks);
  return fmt::format(
      "{} orders, {:08x} | experts {} | context {}, chunk {}, prefill {}, running {} | {} | "
      "delayer {} | {} modules that guess | steps overlap: {}",
      overlap.orders->size(), overlap.orders->fingerprint(), experts, s.model.context_length,
      s.scheduler.chunked_prefill_size, s.scheduler.max_prefill_tokens,
      s.memory.max_running_requests,
      s.scheduler.enable_mixed_chunk ? "mixed" : s.scheduler.prefill_policy,
      s.parallel.enable_prefill_delayer ? s.parallel.prefill_delayer_max_passes : 0,
      choice.model.num_mtp_loaded,
      s.scheduler.disable_overlap_schedule ? "off" : s.scheduler.overlap_schedule);
}

Result<std::string> hash_model(const ModelSettings& model) {
  HOCKET_TRY(const std::string texts, hash_texts(model));
  HOCKET_TRY(const std::string weights, hash_weights(model, HashedWeights::samples));
  Sha256 sum;
  sum.add(texts);
  sum.add(weights);
  return sum.digits();
}

Result<std::string> describe_arithmetic(const ServerSettings& settings) {
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  const std::string form = form_of({.dtype = choice.dtype,
                                    .kv_dtype = choice.kv_dtype,
                                    .dispatch_dtype = choice.dispatch_dtype,
                                    .combine_dtype = choice.combine_dtype,
                                    .weight_format = choice.weight_format(),
                                    .prompt_form = choice.prompt_form,
                                    .answer_begins = choice.answer_begins,
                                    .combine_groups = choice.combine_groups});
  return fmt::format("{} | {}", kArithmeticLevel, form);
}

}  // namespace

Result<std::string> describe_bits(const ServerSettings& settings, const std::string& model) {
  HOCKET_TRY(const std::string arithmetic, describe_arithmetic(settings));
  return fmt::format("model {} | arithmetic {}", model, arithmetic);
}

Result<Identity> make_identity(const ServerSettings& settings, const Launch& launch) {
  Identity self{.rank = launch.rank,
                .num_ranks = launch.num_ranks,
                .ranks_per_node = launch.ranks_per_node,
                .host = this_environment().host_name,
                .version = std::string(kVersion)};
  HOCKET_TRY(self.arithmetic, describe_arithmetic(settings));
  HOCKET_TRY(self.plans, describe_plans(settings));
  HOCKET_TRY(self.model_hash, hash_model(settings.model));
  self.disaggregation = settings.peers.disaggregation_mode;
  return self;
}

}  // namespace hocket
