#include "compute/weights/hf_config.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <exception>

#include "compute/weights/gguf_blocks.h"
#include "compute/weights/hf_arithmetic.h"
#include "compute/weights/hf_families.h"
#include "compute/weights/json_fields.h"
#include "compute/weights/quant_config.h"
#include "core/request_bounds.h"
#include "gguf/config.h"

namespace hocket {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr const char* kConfigFile = "config.json";
constexpr const char* kQuantFile = "hf_quant_config.json";
constexpr const char* kGenerationFile = "generation_config.json";
constexpr Range kVocab{1, 1 << 24};
constexpr Range kPositions{1, 1 << 26};
constexpr Range kTokenIds{0, (1 << 24) - 1};

const HfFamily* read_family(JsonFields& config) {
  const std::vector<std::string> names = config.texts("architectures");
  if (names.empty()) {
    config.refuse(error(ErrorCode::bad_config, "config.json: architectures is missing or empty"));
    return nullptr;
  }
  const auto families = hf_families();
  const auto found = std::ranges::find(families, names[0], &HfFamily::architecture);
  if (found != families.end()) return &*found;
  config.refuse(error(ErrorCode::unsupported_model,
                      "the architecture {} is not supported; supported are {}", shown(names[0]),
                      fmt::join(supported_architectures(), ", "))
                    .with_fix("choose a model of one of these architectures"));
  return nullptr;
}

DType read_dtype(JsonFields& config) {
  std::string name = config.text(config.has("dtype") ? "dtype" : "torch_dtype", "bfloat16");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name != "bfloat16" && name != "auto")
    config.refuse(
        unsupported(fmt::format("config.json: weights of type {} are not supported; "
                                "supported are bfloat16, float16, float32",
                                shown(name))));
  return DType::bf16;
}

void add_eos(std::vector<TokenId>& ids, const std::vector<int64_t>& more) {
  for (const int64_t id : more) {
    const TokenId token{static_cast<int32_t>(id)};
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
}

// Reads the language model from `text`. Keys that describe the whole folder may be there or in
// `top`, which is the same object if the family is flat.
void read_text_model(JsonFields& text, JsonFields& top, const HfFamily& family,
                     ModelConfig& model) {
  const auto either = [&](std::string_view key) -> JsonFields& {
    return text.has(key) ? text : top;
  };
  model.vocab_size = text.integer("vocab_size", kVocab);
  model.hidden_size = text.integer("hidden_size", kHidden);
  model.num_layers = text.integer("num_hidden_layers", kLayers);
  model.num_heads = text.integer("num_attention_heads", kHeads);
  const bool kimi = !text.has("max_position_embeddings") && text.has("model_max_length");
  model.max_position_embeddings =
      text.integer(kimi ? "model_max_length" : "max_position_embeddings", kPositions);
  const bool layernorm = !text.has("rms_norm_eps") && text.has("layernorm_epsilon");
  const std::string_view eps = layernorm ? "layernorm_epsilon" : "rms_norm_eps";
  model.rms_norm_eps = text.number(eps, {0, 0.1}, family.defaults.eps);
  // The config of the part that has the head says it; in the other the key may be a default.
  const std::string_view tie = "tie_word_embeddings";
  const bool top_first = family.form == HfFamily::Form::wrapped && top.has(tie);
  model.tie_word_embeddings = (top_first ? top : either(tie)).flag(tie, family.defaults.tied);
  model.stored_dtype = read_dtype(text.has("dtype") || text.has("torch_dtype") ? text : top);
  const bool own_quant = text.has("quantization_config") || text.has("compression_config");
  model.quant = read_quant_config(own_quant ? text : top);
  if (!text.status() || !top.status()) return;

  model.layer_is_moe.assign(model.num_layers, false);
  family.read(text, model);
  if (text.status()) refuse_other_arithmetic(text, model);
  // A model whose layers are all MoE has no dense MLP, and may omit its width.
  const bool has_dense = std::ranges::count(model.layer_is_moe, false) != 0;
  if (model.intermediate_size == 0)
    model.intermediate_size = has_dense ? text.integer("intermediate_size", kIntermediate)
                                        : text.integer("intermediate_size", {0, 1 << 19}, 0);
  const Range ids{0, double(model.vocab_size - 1)};
  add_eos(model.eos_ids, text.integers("eos_token_id", ids));
  JsonFields& begins = either("bos_token_id");
  if (begins.has("bos_token_id"))
    model.bos_id = TokenId{static_cast<int32_t>(begins.integer("bos_token_id", ids))};
}

// Reads what is beside text_config: parts that are not loaded, and the tokens of their input.
void read_other_parts(JsonFields& top, ModelConfig& model) {
  for (const std::string_view part : {"vision_config", "audio_config"})
    if (top.object(part)) model.left_aside.emplace_back(part);
  const Range ids{0, double(model.vocab_size - 1)};
  for (const std::string_view key :
       {"image_token_id", "video_token_id", "audio_token_id", "image_token_index",
        "video_token_index", "audio_token_index", "media_placeholder_token_id"})
    if (top.has(key))
      model.placeholder_ids.push_back(TokenId{static_cast<int32_t>(top.integer(key, ids))});
  add_eos(model.eos_ids, top.integers("eos_token_id", ids));
  if (top.status()) refuse_other_arithmetic(top, model);
}

ModelConfig read_model(JsonFields& config) {
  ModelConfig model;
  const HfFamily* family = read_family(config);
  if (!family) return model;
  model.architecture = family->architecture;
  if (family->form == HfFamily::Form::flat) {
    read_text_model(config, config, *family, model);
    return model;
  }
  std::optional<JsonFields> text = config.object("text_config");
  if (!text) {
    config.refuse(error(ErrorCode::bad_config, "config.json: text_config is missing"));
    return model;
  }
  read_text_model(*text, config, *family, model);
  config.absorb(*text);
  if (config.status()) read_other_parts(config, model);
  return model;
}

constexpr const char* kTakeAgain = "take the file from the model's publisher again";

// Parses `text` and passes its root object to `read`.
template <class T, class Read>
Result<T> read_json(std::string_view text, const std::string& name, Read read) try {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const auto code = parser.parse(text.data(), text.size()).get(root);
  if (code != simdjson::SUCCESS)
    return fail(error(ErrorCode::bad_config, "{} is not a JSON object: {}", name,
                      simdjson::error_message(code)));
  if (const auto key = repeated_key(root))
    return fail(ErrorCode::bad_config, "{} holds the key {} twice", name, shown(*key));
  JsonFields fields(root, name);
  T value = read(fields);
  HOCKET_TRY_VOID(fields.status());
  return value;
} catch (const std::exception& e) {
  return fail(ErrorCode::bad_config, "{} cannot be read: {}", name, e.what());
}

// The same; an error of the file that names no remedy gets the usual one.
template <class T, class Read>
Result<T> with_json(std::string_view text, const std::string& name, Read read) {
  auto value = read_json<T>(text, name, read);
  if (!value && value.error().fix.empty()) value.error().fix = kTakeAgain;
  return value;
}

// A default must be within the range that requests allow; otherwise requests without the field
// would get a value that no request can ask for.
std::optional<double> sampling_number(JsonFields& fields, std::string_view field) {
  const NumberRange& range =
      std::ranges::find(kSamplingNumbers, field, &SamplingNumber::field)->range;
  const auto value = fields.number_if(field, {range.low, range.high});
  if (value && !range.holds(*value))
    fields.refuse(error(ErrorCode::bad_config, "generation_config.json: {} is {}, must be {}",
                        field, *value, range.text())
                      .with_fix("change it, or take it out of the file"));
  return value;
}

// Makes an error of a text that was made from a GGUF file one of the file: nobody can change the
// text.
template <class T>
Result<T> read_from(const std::filesystem::path& gguf, Result<T> value) {
  if (value) return value;
  Error& e = value.error();
  e.message =
      fmt::format("{}, read as the folder that it was made from: {}", gguf.string(), e.message);
  e.fix = "take another file of the model, or its folder in safetensors, if it is supported";
  return value;
}

// The file beside the weights, else what the metadata of a GGUF file say.
Result<GenerationFile> read_generation_file(const std::filesystem::path& model) {
  const std::filesystem::path gguf = gguf_file_of(model);
  const std::filesystem::path file = (gguf.empty() ? model : gguf.parent_path()) / kGenerationFile;
  std::error_code ec;
  if (std::filesystem::exists(file, ec)) {
    HOCKET_TRY(const std::string text, read_small_file(file, kMaxConfigBytes));
    return parse_generation_config(text);
  }
  if (gguf.empty()) return GenerationFile{};
  HOCKET_TRY(const auto opened, GgufFile::open(gguf, GgufExtent::header));
  return read_from(gguf, parse_generation_config(gguf_generation_json(*opened)));
}

Result<ModelConfig> read_gguf_config(const std::filesystem::path& path) {
  HOCKET_TRY(const auto file, GgufFile::open(path, GgufExtent::header));
  HOCKET_TRY(const std::string text, gguf_config_json(*file));
  HOCKET_TRY(ModelConfig model, read_from(path, parse_hf_config(text)));
  model.quant = {.layout = QuantConfig::Layout::gguf, .most = most_blocks(*file)};
  return model;
}

Result<QuantConfig> read_quant_file(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kQuantFile;
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) return QuantConfig{};
  HOCKET_TRY(const std::string text, read_small_file(file, kMaxConfigBytes));
  return parse_modelopt_config(text);
}

}  // namespace

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const HfFamily& family : hf_families()) names.push_back(family.architecture);
  return names;
}

Result<ModelConfig> parse_hf_config(std::string_view config_json) {
  return with_json<ModelConfig>(config_json, "config.json", read_model);
}

Result<QuantConfig> parse_modelopt_config(std::string_view json) {
  return with_json<QuantConfig>(json, kQuantFile, read_modelopt_file);
}

Result<GenerationFile> parse_generation_config(std::string_view json) {
  return with_json<GenerationFile>(json, kGenerationFile, [](JsonFields& fields) {
    GenerationFile out;
    out.defaults.temperature = sampling_number(fields, "temperature");
    out.defaults.top_p = sampling_number(fields, "top_p");
    out.defaults.min_p = sampling_number(fields, "min_p");
    out.defaults.repetition_penalty = sampling_number(fields, "repetition_penalty");
    if (fields.has("top_k"))
      out.defaults.top_k = static_cast<int>(fields.integer("top_k", {-1, kVocab.max}));
    out.eos_ids = fields.integers("eos_token_id", kTokenIds);
    return out;
  });
}

namespace {

// A repository of GGUF files may hold a model several times, in several types.
Result<void> refuse_several_files(const std::filesystem::path& folder) {
  constexpr size_t kNamed = 8;
  std::error_code ec;
  if (std::filesystem::exists(folder / kConfigFile, ec)) return {};
  const std::vector<std::filesystem::path> models = gguf_models_in(folder);
  if (models.size() < 2) return {};
  std::string names;
  for (size_t i = 0; i < std::min(models.size(), kNamed); ++i)
    names += (i == 0 ? "" : ", ") + models[i].filename().string();
  if (models.size() > kNamed) names += ", ...";
  return fail(error(ErrorCode::model_not_found, "{} holds {} models in GGUF: {}", folder.string(),
                    models.size(), names)
                  .with_fix("--model-path must name one of the files"));
}

Result<ModelConfig> read_folder_config(const std::filesystem::path& folder) {
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec))
    return fail(error(ErrorCode::model_not_found, "there is no folder {}", folder.string())
                    .with_fix("--model-path must name a Hugging Face model folder or a GGUF file"));
  HOCKET_TRY_VOID(refuse_several_files(folder));
  HOCKET_TRY(const std::string text, read_small_file(folder / kConfigFile, kMaxConfigBytes));
  HOCKET_TRY(ModelConfig model, parse_hf_config(text));
  if (model.quant.layout == QuantConfig::Layout::none) {
    HOCKET_TRY(model.quant, read_quant_file(folder));
  }
  return model;
}

}  // namespace

Result<ModelConfig> read_hf_config(const std::filesystem::path& folder) {
  const std::filesystem::path gguf = gguf_file_of(folder);
  HOCKET_TRY(ModelConfig model, gguf.empty() ? read_folder_config(folder) : read_gguf_config(gguf));
  HOCKET_TRY(const GenerationFile generation, read_generation_file(folder));
  for (const int64_t id : generation.eos_ids)
    if (id >= model.vocab_size)
      return fail(error(ErrorCode::bad_config,
                        "generation_config.json: eos_token_id {} is not below the vocab_size {}",
                        id, model.vocab_size)
                      .with_fix(kTakeAgain));
  add_eos(model.eos_ids, generation.eos_ids);
  return model;
}

Result<GenerationDefaults> read_generation_defaults(const std::filesystem::path& folder) {
  HOCKET_TRY(GenerationFile file, read_generation_file(folder));
  return file.defaults;
}

}  // namespace hocket
