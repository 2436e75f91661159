#include "compute/weights/quant_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <regex>
#include <unordered_map>

namespace hocket {
namespace {

using QuantLayout = QuantConfig::Layout;

constexpr std::string_view kPattern = "re:";
constexpr size_t kPatternChars = 500;
constexpr size_t kPatterns = 64;

Error unsupported_form(const std::string& message) {
  return error(ErrorCode::unsupported_model, "{}", message)
      .with_fix(
          "use a folder of fp8 in blocks of 128 x 128, of 4 bits by AWQ or GPTQ, or of "
          "compressed-tensors (int-quantized W8A8, float-quantized per channel, pack-quantized of "
          "4 bits); or the unquantized model with --quantization int8 or int4");
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

// Returns nothing if the pattern is invalid or needs backtracking. It is compiled for the
// polynomial matcher, because names and patterns from foreign files must not take exponential time.
std::optional<std::regex> compile(const std::string& pattern) try {
  if (pattern.size() > kPatternChars) return std::nullopt;
  int digits = 0;  // length of a number in a count, which would overflow in the library
  for (const char c : pattern)
    if ((digits = c >= '0' && c <= '9' ? digits + 1 : 0) > 4) return std::nullopt;
  return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
} catch (const std::regex_error&) {
  return std::nullopt;
}

void skip(JsonFields& quant, std::string_view key, QuantConfig& out) {
  for (const std::string& entry : quant.texts(key)) out.skipped.push_back(entry);
}

void check_patterns(JsonFields& quant, const QuantConfig& read) {
  size_t patterns = 0;
  for (const std::string& entry : read.skipped) {
    if (!entry.starts_with(kPattern)) continue;
    if (++patterns > kPatterns)
      return quant.refuse(error(ErrorCode::bad_config, "{}: more than {} patterns of modules",
                                quant.where(), kPatterns));
    if (!compile(entry.substr(kPattern.size())))
      return quant.refuse(error(ErrorCode::bad_config,
                                "{}: {} is not a regular expression that can be read",
                                quant.where(), shown(entry)));
  }
}

QuantConfig read_fp8(JsonFields& quant) {
  QuantConfig out = {.layout = QuantLayout::fp8_block, .group = 128};
  only(quant, "fmt", {R"("e4m3")"});
  only(quant, "activation_scheme", {R"("dynamic")"});
  if (!quant.has("weight_block_size"))
    quant.refuse(unsupported_form(fmt::format(
        "{}: fp8 with one scale a tensor (no weight_block_size) is not supported", quant.where())));
  only(quant, "weight_block_size", {"[128,128]"});
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

// The description of its modules by one group of compressed-tensors.
struct Scheme {
  std::string format, type, strategy;
  int64_t bits = 0;
  bool symmetric = true;
  enum class Activations : uint8_t { plain, int8_token, fp8_token, other } activations = {};
};

Scheme::Activations read_activations(JsonFields& group) {
  std::optional<JsonFields> part = group.object("input_activations");
  if (!part) return Scheme::Activations::plain;
  const bool token = part->show("dynamic") == "true" && part->show("num_bits") == "8" &&
                     part->text("strategy", "") == "token" && part->flag("symmetric", true);
  const std::string type = part->text("type", "int");
  if (token && type == "int") return Scheme::Activations::int8_token;
  if (token && type == "float") return Scheme::Activations::fp8_token;
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
  // "weight" and "static" only tell the order in which the tool rounded; "group" moves columns.
  only(weights, "actorder", {"false", R"("weight")", R"("static")"});
  only(weights, "dynamic", {"false"});
  only(group, "output_activations", {});
  return out;
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
  const std::array<std::string_view, 4> activations = {"plain", "int8 a token", "fp8 a token",
                                                       "other"};
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

// Modules that match no target of any group stay unquantized: adds a pattern for them.
void skip_beside_targets(JsonFields& quant, const std::vector<std::string>& targets,
                         QuantConfig& out) {
  std::string any;
  for (const std::string& target : targets) {
    if (target == "Linear") return;
    if (!target.starts_with(kPattern))
      return quant.refuse(unsupported_form(
          fmt::format("{}: config_groups has the target {}; supported are \"Linear\" and patterns",
                      quant.where(), shown(target))));
    any += (any.empty() ? "" : "|") + target.substr(kPattern.size());
  }
  if (!any.empty()) out.skipped.push_back(std::string(kPattern) + "(?!" + any + ")");
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
constexpr std::array<Method, 6> kMethods = {{{"fp8", read_fp8},
                                             {"compressed-tensors", read_compressed_tensors},
                                             {"awq", read_awq},
                                             {"awq_marlin", read_awq},
                                             {"gptq", read_gptq},
                                             {"gptq_marlin", read_gptq}}};

bool has_run_of_components(std::string_view module, std::string_view entry) {
  for (size_t at = module.find(entry); at != module.npos; at = module.find(entry, at + 1)) {
    const size_t end = at + entry.size();
    if ((at == 0 || module[at - 1] == '.') && (end == module.size() || module[end] == '.'))
      return true;
  }
  return false;
}

// Returns true if the pattern matches. Patterns are few and modules many thousands, so compiled
// patterns are kept.
bool matches(const std::string& pattern, std::string_view module) {
  thread_local std::unordered_map<std::string, std::optional<std::regex>> compiled;
  if (compiled.size() > kPatterns) compiled.clear();
  auto [at, is_new] = compiled.try_emplace(pattern);
  if (is_new) at->second = compile(pattern);
  return at->second && std::regex_search(module.begin(), module.end(), *at->second,
                                         std::regex_constants::match_continuous);
}

}  // namespace

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
    only(*quant, "kv_cache_scheme", {});
  } else if (quant->status()) {
    quant->refuse(unsupported_form(name.empty()
                                       ? fmt::format("{}: quant_method is missing", quant->where())
                                       : fmt::format("{}: the quant_method {} is not supported",
                                                     quant->where(), shown(name))));
  }
  config.absorb(*quant);
  return out;
}

bool is_quantized(const QuantConfig& quant, std::string_view module) {
  if (quant.layout == QuantLayout::none) return false;
  for (const std::string& entry : quant.skipped) {
    std::string_view name = entry;
    if (name.starts_with(kPattern)) {
      if (matches(entry.substr(kPattern.size()), module)) return false;
      continue;
    }
    if (name.ends_with('.') && quant.layout != QuantLayout::awq) name.remove_suffix(1);
    if (name.empty()) continue;
    if (quant.layout == QuantLayout::awq ? module.find(name) != module.npos
                                         : has_run_of_components(module, name))
      return false;
  }
  return true;
}

}  // namespace hocket
