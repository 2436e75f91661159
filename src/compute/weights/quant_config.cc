#include "compute/weights/quant_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

namespace hocket {
namespace {

using QuantLayout = QuantConfig::Layout;

constexpr int kMxfpGroup = 32, kNvfpGroup = 16;

Error unsupported_form(const std::string& message) {
  return error(ErrorCode::unsupported_model, "{}", message)
      .with_fix(
          "use a folder of fp8 in blocks of 128 x 128 or with one scale a matrix, of 4 bits by AWQ "
          "or GPTQ, of MXFP4, MXFP8 "
          "or NVFP4, or of compressed-tensors (int-quantized W8A8, float-quantized per channel, "
          "pack-quantized of 4 bits); or the unquantized model with --quantization int8 or int4");
}

// Refuses the config if the field is there with a value (as JSON) other than these.
void only(JsonFields& quant, std::string_view key,
          std::initializer_list<std::string_view> supported) {
  if (!quant.has(key)) return;
  const std::string value = quant.show(key);
  if (std::find(supported.begin(), supported.end(), value) != supported.end()) return;
  quant.refuse(unsupported_form(
      supported.size() == 0
          ? fmt::format("{}: {} is {}, which is not supported", quant.where(), key, value)
          : fmt::format("{}: {} is {}, but supported is {}", quant.where(), key, value,
                        fmt::join(supported, " or "))));
}

void only_empty(JsonFields& quant, std::string_view key) {
  const std::optional<JsonFields> part = quant.object(key);
  if (part && !part->keys().empty()) only(quant, key, {});
}

void only_bits_4(JsonFields& quant, std::string_view key) {
  const int64_t bits = quant.integer(key, {1, 64});
  if (quant.status() && bits != 4)
    quant.refuse(unsupported_form(fmt::format("{}: {} is {}, but supported are weights of 4 bits",
                                              quant.where(), key, bits)));
}

int read_group(JsonFields& quant, std::string_view key) {
  const int64_t group = quant.integer(key, {-1, 1 << 24});
  if (group == -1 || group == 32 || group == 64 || group == 128)
    return static_cast<int>(std::max<int64_t>(group, 0));
  quant.refuse(unsupported_form(fmt::format(
      "{}: {} is {}, but supported are 32, 64, 128 and -1 (all)", quant.where(), key, group)));
  return 0;
}

void skip(JsonFields& quant, std::string_view key, QuantConfig& out) {
  for (const std::string& entry : quant.texts(key)) out.skipped.push_back(entry);
}

void check_patterns(JsonFields& quant, const QuantConfig& read) {
  size_t patterns = 0, targets = 0;
  for (const std::string& entry : read.skipped) {
    const bool glob = entry.starts_with(kGlob), is_target = entry.starts_with(kTarget);
    if (!glob && !is_target && !entry.starts_with(kPattern)) continue;
    if (!glob && !is_target && ++patterns > kPatterns)
      return quant.refuse(error(ErrorCode::bad_config, "{}: more than {} patterns of modules",
                                quant.where(), kPatterns));
    if (is_target && ++targets > kTargets)
      return quant.refuse(
          error(ErrorCode::bad_config, "{}: more than {} targets", quant.where(), kTargets));
    if (!can_be_read(entry))
      return quant.refuse(error(ErrorCode::bad_config, "{}: {} is not a {} that can be read",
                                quant.where(), shown(entry),
                                glob ? "name with stars" : "regular expression"));
  }
}

void only_e4m3(JsonFields& quant) {
  only(quant, "fmt", {R"("e4m3")", R"("float8_e4m3fn")"});
}

// Without weight_block_size a matrix has one scale, and so may the rows that it multiplies, which
// stay bf16 here.
QuantConfig read_fp8(JsonFields& quant) {
  const bool blocks = quant.has("weight_block_size");
  QuantConfig out = {.layout = QuantLayout::fp8_block, .group = blocks ? 128 : 0};
  only_e4m3(quant);
  if (blocks) {
    only(quant, "activation_scheme", {R"("dynamic")"});
    only(quant, "weight_block_size", {"[128,128]"});
  } else {
    only(quant, "activation_scheme", {R"("dynamic")", R"("static")"});
  }
  skip(quant, "modules_to_not_convert", out);
  skip(quant, "ignored_layers", out);
  return out;
}

QuantConfig read_awq(JsonFields& quant) {
  QuantConfig out = {.layout = QuantLayout::awq};
  only_bits_4(quant, quant.has("bits") ? "bits" : "w_bit");
  out.group = read_group(quant, quant.has("group_size") ? "group_size" : "q_group_size");
  only(quant, "version", {R"("gemm")", R"("GEMM")"});
  only(quant, "backend", {R"("autoawq")"});
  skip(quant, "modules_to_not_convert", out);
  return out;
}

QuantConfig read_gptq(JsonFields& quant) {
  QuantConfig out = {.layout = QuantLayout::gptq};
  only_bits_4(quant, "bits");
  out.group = read_group(quant, "group_size");
  only(quant, "desc_act", {"false"});
  only(quant, "lm_head", {"false"});
  only(quant, "pack_dtype", {R"("int32")"});
  only(quant, "is_marlin_format", {"false"});
  const std::string_view key = quant.has("checkpoint_format") ? "checkpoint_format" : "format";
  only(quant, key, {R"("gptq")", R"("gptq_v2")"});
  out.gptq_zeros_less_1 = quant.text(key, "gptq") != "gptq_v2";
  // Patterns of modules with their own options; "-:" leaves such modules unquantized.
  if (const std::optional<JsonFields> dynamic = quant.object("dynamic")) {
    for (const std::string& pattern : dynamic->keys()) {
      if (!pattern.starts_with("-:")) return only(quant, "dynamic", {}), out;
      out.skipped.push_back(std::string(kPattern) + pattern.substr(2));
    }
  }
  return out;
}

// Adds names in which a star stands for anything. Tools write one or more for each layer.
void skip_globs(JsonFields& quant, std::string_view key, QuantConfig& out) {
  for (const std::string& entry : quant.texts(key))
    out.skipped.push_back(entry.contains('*') ? std::string(kGlob) + entry : entry);
}

QuantConfig read_mxfp4(JsonFields& quant) {
  QuantConfig out = {.layout = QuantLayout::mxfp4, .group = kMxfpGroup};
  skip_globs(quant, "modules_to_not_convert", out);
  return out;
}

QuantConfig read_mxfp8(JsonFields& quant) {
  QuantConfig out = {.layout = QuantLayout::mxfp8, .group = kMxfpGroup};
  only_e4m3(quant);
  only(quant, "weight_block_size", {"[1,32]"});
  skip(quant, "modules_to_not_convert", out);
  skip(quant, "ignored_layers", out);
  return out;
}

// Fields of ModelOpt, in quantization_config or in hf_quant_config.json.
QuantConfig read_modelopt(JsonFields& quant) {
  QuantConfig out = {.layout = QuantLayout::nvfp4, .group = kNvfpGroup};
  if (!quant.has("quant_algo"))
    quant.refuse(unsupported_form(fmt::format("{}: quant_algo is missing", quant.where())));
  only(quant, "quant_algo", {R"("NVFP4")"});
  only(quant, "group_size", {"16"});
  skip_globs(quant, "ignore", out);
  skip_globs(quant, "exclude_modules", out);
  return out;
}

// The description of its modules by one group of compressed-tensors.
struct Scheme {
  std::string format, type, strategy;
  int64_t bits = 0;
  bool symmetric = true;
  enum class Activations : uint8_t { plain, int8_token, fp8_token, floats, other };
  Activations activations = {};
};

Scheme::Activations read_activations(JsonFields& group) {
  std::optional<JsonFields> part = group.object("input_activations");
  if (!part) return Scheme::Activations::plain;
  const bool token = part->show("dynamic") == "true" && part->show("num_bits") == "8" &&
                     part->text("strategy", "") == "token" && part->flag("symmetric", true);
  const std::string type = part->text("type", "int");
  if (token && type == "int") return Scheme::Activations::int8_token;
  if (token && type == "float") return Scheme::Activations::fp8_token;
  if (type == "float") return Scheme::Activations::floats;
  return Scheme::Activations::other;
}

Scheme read_scheme(JsonFields& group, JsonFields& weights, const std::string& format) {
  Scheme out;
  out.format = group.text("format", format);
  out.bits = weights.integer("num_bits", {1, 64});
  out.type = weights.text("type", "int");
  out.strategy = weights.text("strategy", weights.has("group_size") ? "group" : "tensor");
  out.symmetric = weights.flag("symmetric", true);
  out.activations = read_activations(group);
  // "weight" and "static" only name the order in which the tool rounded; "group" moves columns.
  only(weights, "actorder", {"false", R"("weight")", R"("static")"});
  only(weights, "dynamic", {"false"});
  only(group, "output_activations", {});
  return out;
}

// Returns nothing if the scheme is none of numbers in groups of 16 or 32. Such rows stay bf16,
// whatever floats the tool meant them to become.
std::optional<QuantConfig> mx_layout_of(const Scheme& s, JsonFields& weights) {
  struct MxScheme {
    std::string_view format, strategy;
    int64_t bits;
    QuantConfig layout;
  };
  const MxScheme schemes[] = {
      {"mxfp4-pack-quantized", "group", 4, {.layout = QuantLayout::mxfp4, .group = kMxfpGroup}},
      {"mxfp8-quantized", "group", 8, {.layout = QuantLayout::mxfp8, .group = kMxfpGroup}},
      {"nvfp4-pack-quantized",
       "tensor_group",
       4,
       {.layout = QuantLayout::nvfp4, .group = kNvfpGroup}}};
  const bool floats = s.type == "float" && s.symmetric &&
                      s.activations != Scheme::Activations::int8_token &&
                      s.activations != Scheme::Activations::other;
  for (const MxScheme& mx : schemes)
    if (floats && s.format == mx.format && s.strategy == mx.strategy && s.bits == mx.bits) {
      const std::string group = std::to_string(mx.layout.group);
      only(weights, "group_size", {group});
      return mx.layout;
    }
  return std::nullopt;
}

QuantConfig layout_of(const Scheme& s, JsonFields& weights) {
  using Activations = Scheme::Activations;
  const auto format = [&](std::string_view name) {
    return s.format == name || (s.bits == 8 && s.format == "naive-quantized");
  };
  const bool channels8 = s.bits == 8 && s.strategy == "channel";
  if (channels8 && s.type == "int" && format("int-quantized") &&
      s.activations == Activations::int8_token)
    return {.layout = QuantLayout::int8_channel};
  if (channels8 && s.type == "float" && s.symmetric && format("float-quantized") &&
      (s.activations == Activations::fp8_token || s.activations == Activations::plain))
    return {.layout = QuantLayout::fp8_channel};
  if (s.bits == 4 && s.type == "int" && format("pack-quantized") &&
      s.activations == Activations::plain) {
    if (s.strategy == "channel") return {.layout = QuantLayout::packed};
    if (s.strategy == "group")
      return {.layout = QuantLayout::packed, .group = read_group(weights, "group_size")};
  }
  if (const std::optional<QuantConfig> mx = mx_layout_of(s, weights)) return *mx;
  const std::array<std::string_view, 5> activations = {"plain", "int8 a token", "fp8 a token",
                                                       "other float", "other"};
  weights.refuse(unsupported_form(fmt::format(
      "{}: {} of {} bits, type {}, strategy {}, {}, with {} activations, is not supported",
      weights.where(), shown(s.format), s.bits, shown(s.type), shown(s.strategy),
      s.symmetric ? "symmetric" : "asymmetric", activations[static_cast<size_t>(s.activations)])));
  return {};
}

QuantConfig read_config_group(JsonFields& group, const std::string& format) {
  std::optional<JsonFields> weights = group.object("weights");
  if (!weights) {
    group.refuse(unsupported_form(
        fmt::format("{}: a group without weights is not supported", group.where())));
    return {};
  }
  const Scheme scheme = read_scheme(group, *weights, format);
  const QuantConfig out = weights->status() ? layout_of(scheme, *weights) : QuantConfig{};
  group.absorb(*weights);
  return out;
}

// Modules that match no target of any group stay unquantized.
void skip_beside_targets(JsonFields& quant, const std::vector<std::string>& targets,
                         QuantConfig& out) {
  std::vector<std::string> patterns;
  for (const std::string& target : targets) {
    if (target == "Linear") return;
    if (!target.starts_with(kPattern))
      return quant.refuse(unsupported_form(
          fmt::format("{}: config_groups has the target {}; supported are \"Linear\" and patterns",
                      quant.where(), shown(target))));
    patterns.push_back(std::string(kTarget) + target.substr(kPattern.size()));
  }
  out.skipped.insert(out.skipped.end(), patterns.begin(), patterns.end());
}

QuantConfig read_compressed_tensors(JsonFields& quant) {
  QuantConfig out;
  const std::string format = quant.text("format", "");
  std::optional<JsonFields> groups = quant.object("config_groups");
  std::vector<std::string> targets;
  for (const std::string& name : groups ? groups->keys() : std::vector<std::string>{}) {
    std::optional<JsonFields> group = groups->object(name);
    if (!group) break;
    const QuantConfig read = read_config_group(*group, format);
    for (const std::string& target : group->texts("targets")) targets.push_back(target);
    groups->absorb(*group);
    if (out.layout != QuantLayout::none && (read.layout != out.layout || read.group != out.group))
      quant.refuse(unsupported_form(
          fmt::format("{}: config_groups of different kinds are not supported", quant.where())));
    out = read;
  }
  if (groups) quant.absorb(*groups);
  if (quant.status() && out.layout == QuantLayout::none)
    quant.refuse(unsupported_form(
        fmt::format("{}: compressed-tensors without config_groups (format {}) is not supported",
                    quant.where(), shown(format))));
  skip(quant, "ignore", out);
  skip_beside_targets(quant, targets, out);
  if (const auto sparsity = quant.object("sparsity_config"))
    if (sparsity->show("format") != R"("dense")") only_empty(quant, "sparsity_config");
  only_empty(quant, "transform_config");
  return out;
}

struct Method {
  std::string_view name;
  QuantConfig (*read)(JsonFields&);
};
// Names with "marlin" denote a kernel; the files are those of the plain method.
constexpr std::array<Method, 9> kMethods = {{{"fp8", read_fp8},
                                             {"mxfp4", read_mxfp4},
                                             {"mxfp8", read_mxfp8},
                                             {"modelopt", read_modelopt},
                                             {"compressed-tensors", read_compressed_tensors},
                                             {"awq", read_awq},
                                             {"awq_marlin", read_awq},
                                             {"gptq", read_gptq},
                                             {"gptq_marlin", read_gptq}}};

}  // namespace

// kv_cache_scheme, the format in which keys and values were meant to be kept, changes no weight;
// --kv-cache-dtype decides it here.
QuantConfig read_quant_config(JsonFields& config) {
  std::optional<JsonFields> quant = config.object("quantization_config");
  if (!quant) quant = config.object("compression_config");
  if (!quant) return {};
  const std::string name = quant->text("quant_method", "");
  const auto method = std::ranges::find(kMethods, name, &Method::name);
  QuantConfig out;
  if (method != kMethods.end()) {
    out = method->read(*quant);
    check_patterns(*quant, out);
  } else if (quant->status()) {
    quant->refuse(unsupported_form(name.empty()
                                       ? fmt::format("{}: quant_method is missing", quant->where())
                                       : fmt::format("{}: the quant_method {} is not supported",
                                                     quant->where(), shown(name))));
  }
  config.absorb(*quant);
  return out;
}

QuantConfig read_modelopt_file(JsonFields& file) {
  std::optional<JsonFields> quant = file.object("quantization");
  if (!quant) return {};
  const QuantConfig out = read_modelopt(*quant);
  check_patterns(*quant, out);
  file.absorb(*quant);
  return out;
}

}  // namespace hocket
