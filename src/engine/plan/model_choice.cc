#include "engine/plan/model_choice.h"

#include <algorithm>

#include "compute/models/family.h"
#include "compute/moe/exchange_message.h"
#include "compute/weights/gguf_source.h"
#include "compute/weights/hf_config.h"
#include "engine/plan/latent_form.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

Result<DType> choose_dtype(std::string_view name) {
  if (name == "auto" || name == "bfloat16" || name == "bf16") return DType::bf16;
  if (name == "float32" || name == "fp32") return DType::f32;
  return fail(error(ErrorCode::bad_value, "--dtype {} is not one of auto, bfloat16, float32", name)
                  .with_param("dtype"));
}

Result<WeightFormat> choose_quantization(std::string_view name, DType dtype) {
  WeightFormat format = WeightFormat::bf16;
  if (name == "int8") format = WeightFormat::int8;
  if (name == "int4") format = WeightFormat::int4;
  if (format == WeightFormat::bf16 && name != "none")
    return fail(
        error(ErrorCode::bad_value, "--quantization {} is not one of none, int8, int4", name)
            .with_param("quantization")
            .with_fix("files that are already quantized need no flag: config.json says how"));
  if (format != WeightFormat::bf16 && dtype == DType::f32)
    return fail(error(ErrorCode::bad_value,
                      "--quantization {} and --dtype float32 contradict each other: in float32 "
                      "nothing is quantized",
                      name)
                    .with_fix("--dtype bfloat16"));
  return format;
}

Result<DType> choose_kv_dtype(std::string_view name, DType dtype) {
  if (name == "auto") return dtype;
  if (name == "int8") return DType::int8;
  if (name == dtype_name(dtype)) return dtype;
  return fail(error(ErrorCode::bad_value, "--kv-cache-dtype {} is not one of auto, int8", name)
                  .with_param("kv-cache-dtype"));
}

// Returns the type of rows on their way to experts or back. rounds: the rows that int8 rounds.
Result<DType> choose_row_dtype(std::string_view flag, std::string_view name,
                               std::string_view rounds, const ModelChoice& choice) {
  if (name == "auto" || name == dtype_name(choice.dtype)) return choice.dtype;
  if (name != "int8")
    return fail(error(ErrorCode::bad_value, "--{} {} is not one of auto, {}, int8", flag, name,
                      dtype_name(choice.dtype))
                    .with_param(std::string(flag)));
  if (choice.model.moe.num_experts == 0)
    return fail(error(ErrorCode::bad_value, "--{} int8 rounds the {}, but {} has none", flag,
                      rounds, choice.model.architecture)
                    .with_param(std::string(flag))
                    .with_fix(fmt::format("--{} auto", flag)));
  return DType::int8;
}

// A match of a prompt ends at a state, before or inside pages of an answer, as chunks and memory
// had it. So with delta nets both must be of one form, or bits would depend on these.
Result<MlaForm> choose_prompt_form(std::string_view form, const ModelConfig& model) {
  const bool absorbs = model.mla.kv_rank > 0 && model.num_linear_layers() > 0;
  if (form == "absorbed") return MlaForm::absorbed;
  if (form == "auto") return absorbs ? MlaForm::absorbed : MlaForm::expanded;
  if (form != "roles" && !form.starts_with(kAnswersPrefix))
    return fail(error(ErrorCode::bad_value,
                      "--mla-form {} is not one of auto, absorbed, roles, answers:ID,ID..", form)
                    .with_param("mla-form"));
  if (absorbs)
    return fail(error(ErrorCode::bad_value,
                      "--mla-form {}: with delta nets all rows have the absorbed form", form)
                    .with_param("mla-form")
                    .with_fix("--mla-form auto"));
  return MlaForm::expanded;
}

// Returns "2, 4, 8": the numbers from `least` that divide `number`.
std::string divisors(int number, int least) {
  std::string list;
  for (int n = least; n <= number; ++n)
    if (number % n == 0) list += fmt::format("{}{}", list.empty() ? "" : ", ", n);
  return list;
}

Result<void> check_ranks(int num_ranks, const ModelConfig& model) {
  const int experts = model.moe.num_experts;
  if (num_ranks == 1) return {};
  if (experts == 0)
    return fail(error(ErrorCode::bad_value,
                      "--ep-size {} spreads experts over ranks, but {} has none", num_ranks,
                      model.architecture)
                    .with_param("ep-size")
                    .with_fix("--ep-size 1"));
  if (num_ranks < 1 || num_ranks > experts)
    return fail(error(ErrorCode::bad_value, "--ep-size {} is not in 1 to {}, the number of experts",
                      num_ranks, experts)
                    .with_param("ep-size")
                    .with_fix("fewer ranks"));
  return {};
}

// Kernels and messages count the experts of a layer that one rank has.
Result<void> check_experts_of_rank(int groups, int num_ranks, int experts) {
  const int most = (groups + num_ranks - 1) / num_ranks * (experts / groups);
  if (most <= kMaxRankExperts) return {};
  const int ranks = (experts + kMaxRankExperts - 1) / kMaxRankExperts;
  return fail(error(ErrorCode::bad_value,
                    "--ep-size {}: a rank would have {} experts of a layer, more than {}",
                    num_ranks, most, kMaxRankExperts)
                  .with_param("ep-size")
                  .with_fix(fmt::format("--ep-size {} or more{}", std::max(ranks, num_ranks),
                                        groups == experts ? "" : ", and --combine-groups 0")));
}

// One rank sums each group, so no group may be on two ranks. The default depends on the model
// alone, so that the bits are the same on any number of ranks.
Result<int> choose_combine_groups(int asked, int num_ranks, const ModelConfig& model) {
  HOCKET_TRY_VOID(check_ranks(num_ranks, model));
  const int experts = std::max(model.moe.num_experts, 1);
  const int groups = asked == 0 ? experts : asked;
  std::string why;
  if (groups < 1 || groups > experts || experts % groups != 0)
    why = fmt::format("does not divide {} experts", experts);
  else if (groups < num_ranks)
    why = fmt::format("is below the {} ranks: some group of experts would be on two of them",
                      num_ranks);
  if (why.empty()) {
    HOCKET_TRY_VOID(check_experts_of_rank(groups, num_ranks, experts));
    return groups;
  }
  return fail(
      error(ErrorCode::bad_value, "--combine-groups {} {}", groups, why)
          .with_param("combine-groups")
          .with_fix(fmt::format("--combine-groups, one of {}", divisors(experts, num_ranks))));
}

// Only of modules that read the model's own rows may there be several, one for each draft; else one
// is used again and again.
Result<int> choose_modules(const ServerSettings& settings, const ModelConfig& model) {
  HOCKET_TRY(const SpeculationChoice speculation, choose_speculation(settings, model));
  const int for_drafts = !speculation.by_module ? 0 : model.local_mtp ? speculation.max_drafts : 1;
  const int most = std::max(settings.model.max_mtp_modules, for_drafts);
  if (most == 0) return 0;
  HOCKET_TRY_VOID(find_family(model.architecture));
  if (!has_module(model))
    return fail(error(ErrorCode::bad_value,
                      "{} has no module for multi-token prediction that hocket can load",
                      model.architecture)
                    .with_param("speculative-algorithm")
                    .with_fix("--speculative-algorithm auto"));
  return std::min(most, model.local_mtp ? model.num_mtp_layers : 1);
}

int64_t page_bytes(std::span<const KvShape> layers) {
  int64_t bytes = 0;
  for (const KvShape& shape : layers) bytes += shape.page_bytes();
  return bytes;
}

}  // namespace

KvShapes ModelChoice::kv_shapes(int page_tokens) const {
  return kv_shapes_apart(model, kv_dtype, page_tokens);
}

int64_t ModelChoice::kv_full_page_bytes(int page_tokens) const {
  return page_bytes(kv_shapes(page_tokens).full);
}

int64_t ModelChoice::kv_window_page_bytes(int page_tokens) const {
  return page_bytes(kv_shapes(page_tokens).windowed);
}

int64_t ModelChoice::module_page_bytes(int page_tokens) const {
  return model.num_mtp_loaded > 0 ? kv_shapes(page_tokens).full.back().page_bytes() : 0;
}

WeightLoader::Options ModelChoice::loader_options() const {
  return {.source = headers.get(), .dtype = dtype, .stored = model.quant, .quantize = quantize};
}

WeightFormat ModelChoice::weight_format() const {
  if (dtype == DType::f32) return WeightFormat::f32;
  return format_asked(stored_format(), quantize);
}

WeightFormat ModelChoice::stored_format() const {
  using enum QuantConfig::Layout;
  switch (model.quant.layout) {
    case none:
      return WeightFormat::bf16;
    case fp8_block:
    case fp8_channel:
      return WeightFormat::fp8;
    case int8_channel:
      return WeightFormat::int8;
    case awq:
    case gptq:
    case packed:
      return WeightFormat::int4;
    case mxfp4:
      return WeightFormat::mxfp4;
    case mxfp8:
      return WeightFormat::mxfp8;
    case nvfp4:
      return WeightFormat::nvfp4;
    case gguf:
      return model.quant.most;
  }
  return WeightFormat::bf16;
}

ScratchNeed ModelChoice::scratch_need(int max_rows, int page_tokens) const {
  const int max_k = std::max(
      {model.hidden_size, attended_columns(model), model.delta_net.value_columns(),
       model.mla.q_rank, model.mla.kv_rank, model.intermediate_size, model.moe.intermediate_size,
       model.moe.shared_intermediate_size, model.num_mtp_loaded > 0 ? 2 * model.hidden_size : 0});
  ScratchNeed need = {.max_rows = max_rows,
                      .max_k = max_k,
                      .dtype = dtype,
                      .num_experts = model.moe.num_experts,
                      .delta_net = model.delta_net};
  set_attention_need(model, kv_dtype, page_tokens, need);
  return need;
}

Result<ModelChoice> choose_model_form(const ServerSettings& settings) {
  ModelChoice choice;
  HOCKET_TRY(choice.dtype, choose_dtype(settings.model.dtype));
  HOCKET_TRY(choice.quantize, choose_quantization(settings.model.quantization, choice.dtype));
  HOCKET_TRY(choice.kv_dtype, choose_kv_dtype(settings.memory.kv_cache_dtype, choice.dtype));
  HOCKET_TRY(choice.model, read_hf_config(settings.model.model_path));
  if (choice.model.quant.layout == QuantConfig::Layout::gguf &&
      settings.model.load_format != "dummy") {
    HOCKET_TRY(auto file,
               GgufFile::open(gguf_file_of(settings.model.model_path), GgufExtent::header));
    choice.headers = std::make_shared<GgufWeights>(std::move(file));
  }
  HOCKET_TRY(choice.prompt_form, choose_prompt_form(settings.compute.mla_form, choice.model));
  if (!caches_whole_answers(choice.model, choice.prompt_form)) {
    HOCKET_TRY(choice.answer_begins, choose_answer_begins(settings, choice.model));
  }
  HOCKET_TRY(choice.dispatch_dtype,
             choose_row_dtype("dispatch-dtype", settings.parallel.dispatch_dtype,
                              "rows that experts get", choice));
  HOCKET_TRY(choice.combine_dtype,
             choose_row_dtype("combine-dtype", settings.parallel.combine_dtype,
                              "sums of experts' rows", choice));
  HOCKET_TRY(choice.combine_groups, choose_combine_groups(settings.compute.combine_groups,
                                                          settings.parallel.ep_size, choice.model));
  HOCKET_TRY(choice.model.num_mtp_loaded, choose_modules(settings, choice.model));
  // All records of a store have the size of a whole window.
  choice.model.keeps_chunks = choice.model.local.visible.chunk > 0 && has_cache_tier(settings);
  return choice;
}

Result<Model> load_held(const ModelChoice& choice, WeightLoader& loader) {
  if (choice.experts.empty()) return Model::load(choice.model, loader);
  return Model::load(choice.model, choice.experts, loader);
}

ExpertWeights load_expert(const ModelChoice& choice, int layer, int expert, WeightLoader& loader) {
  return Model::load_expert(choice.model, layer, expert, loader);
}

Result<ExpertBytes> largest_expert_bytes(const ModelChoice& choice, const WeightSource* source) {
  WeightLoader::Options options = choice.loader_options();
  if (source != nullptr) options.source = source;
  const ModelConfig& model = choice.model;
  ExpertBytes most;
  for (int layer = 0; layer < model.num_layers + model.num_mtp_loaded; ++layer) {
    const bool of_module = layer >= model.num_layers;
    if (!(of_module ? model.mtp_module().layer_is_moe[0] : model.layer_is_moe[layer])) continue;
    WeightLoader loader = WeightLoader::measuring(options);
    load_expert(choice, layer, 0, loader);
    HOCKET_TRY_VOID(loader.status());
    int64_t& bytes = of_module ? most.of_modules : most.of_layers;
    bytes = std::max(bytes, loader.bytes());
  }
  return most;
}

Result<MeasuredWeights> measure_weights(const ModelChoice& choice, const WeightSource* source) {
  WeightLoader::Options options = choice.loader_options();
  if (source != nullptr) options.source = source;
  WeightLoader loader = WeightLoader::measuring(options);
  HOCKET_TRY_VOID(load_held(choice, loader));
  return MeasuredWeights{loader.bytes(), loader.fingerprint()};
}

}  // namespace hocket
