#include "compute/weights/rope_fields.h"

#include <utility>

#include "compute/weights/hf_families.h"

namespace hocket {
namespace {

constexpr Range kPositive{1e-12, 1e12};
constexpr std::string_view kQueryBeta = "llama_4_scaling_beta";

RopeConfig::Scaling read_scaling_kind(JsonFields& rope, const RopeInput& input) {
  const std::string kind =
      rope.has("rope_type") ? rope.text("rope_type", "default") : rope.text("type", "default");
  if (!input.three_axes && rope.has("mrope_section"))
    rope.refuse(
        unsupported("config.json: rope positions in three axes (mrope_section) are not "
                    "supported"));
  if (kind == "linear") return RopeConfig::Scaling::linear;
  if (kind == "llama3") return RopeConfig::Scaling::llama3;
  if (kind == "yarn") return RopeConfig::Scaling::yarn;
  if (kind == "divided") return RopeConfig::Scaling::divided;
  if (kind == "proportional" && input.proportional) return RopeConfig::Scaling::proportional;
  if (kind != "default")
    rope.refuse(
        unsupported(fmt::format("config.json: rope scaling of type {} is not supported; "
                                "supported are default, divided, linear, llama3, yarn",
                                shown(kind))));
  return RopeConfig::Scaling::none;
}

void read_scaling(JsonFields& rope, const RopeInput& input, RopeConfig& out) {
  using Scaling = RopeConfig::Scaling;
  out.scaling = read_scaling_kind(rope, input);
  if (out.scaling == Scaling::none) return;
  if (out.scaling == Scaling::proportional) {
    if (rope.number("factor", {1, 1e6}, 1) != 1)
      rope.refuse(unsupported(
          fmt::format("config.json: proportional rope scaling has the factor {}; supported is 1",
                      rope.show("factor"))));
    return;
  }
  if (out.scaling == Scaling::divided) {
    out.divisors = rope.numbers("divisors", kPositive);
    return;
  }
  out.factor = rope.number("factor", {1, 1e6});
  if (out.scaling == Scaling::llama3) {
    out.low_freq_factor = rope.number("low_freq_factor", kPositive);
    out.high_freq_factor = rope.number("high_freq_factor", kPositive);
    out.original_context = rope.number("original_max_position_embeddings", {1, 1e12});
    if (out.high_freq_factor < out.low_freq_factor)
      rope.refuse(error(ErrorCode::bad_config,
                        "config.json: high_freq_factor {} is below low_freq_factor {}",
                        out.high_freq_factor, out.low_freq_factor)
                      .with_fix("the config.json that was published with the weights"));
  }
  if (out.scaling == Scaling::yarn) {
    out.original_context =
        rope.number("original_max_position_embeddings", {1, 1e12}, input.positions);
    out.beta_fast = rope.number("beta_fast", kPositive, 32);
    out.beta_slow = rope.number("beta_slow", kPositive, 1);
    out.truncate = rope.flag("truncate", true);
    out.attention_factor = rope.number_if("attention_factor", kPositive);
    out.mscale = rope.number("mscale", {0, 1e6}, 0);
    out.mscale_all_dim = rope.number("mscale_all_dim", {0, 1e6}, 0);
    out.query_beta = input.scaled_queries ? rope.number(kQueryBeta, {0, 1e3}, 0) : 0;
  }
}

}  // namespace

RopeConfig read_rope(JsonFields& config, const RopeInput& input) {
  RopeConfig out;
  std::optional<JsonFields> rope = config.object("rope_parameters");
  // A key of its own for these layers wins over the theta that all layers share.
  bool has_own_theta = input.theta_key != "rope_theta" && config.has(input.theta_key);
  if (rope) {
    // Models with several layer types hold one dictionary for each.
    if (std::optional<JsonFields> inner = rope->object(input.layers)) {
      rope = std::move(inner);
      has_own_theta = false;
    }
  } else {
    rope = config.object("rope_scaling");
  }
  out.theta =
      input.theta ? *input.theta : config.number(input.theta_key, kThetas, input.default_theta);
  double share = config.number("partial_rotary_factor", {0, 1}, input.share);
  if (rope) {
    const double theta = rope->number("rope_theta", kThetas, out.theta);
    if (!has_own_theta) out.theta = theta;
    share = rope->number("partial_rotary_factor", {0, 1}, share);
    read_scaling(*rope, input, out);
    if (rope->has(kQueryBeta) && !rope->was_read(kQueryBeta))
      config.refuse(unsupported(fmt::format(
          "config.json: {} is {}, queries scaled by their position, which is supported with yarn "
          "in Mistral 4 only",
          kQueryBeta, rope->show(kQueryBeta))));
    config.absorb(*rope);
  }
  // A share that is a quotient, written as a decimal number, may be just below it.
  out.rotary_dim = static_cast<int>(input.dims * share + 1e-6);
  if (out.rotary_dim < 2 || out.rotary_dim % 2 != 0)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: the rotary part of a head has {} of {} dimensions (head_dim, "
                        "qk_rope_head_dim, partial_rotary_factor), but must be even and at least 2",
                        out.rotary_dim, input.dims));
  if (out.scaling == RopeConfig::Scaling::divided && std::ssize(out.divisors) != out.rotary_dim / 2)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: rope scaling has {} divisors for the {} pairs of the rotary "
                        "part of a head",
                        out.divisors.size(), out.rotary_dim / 2));
  if (out.scaling == RopeConfig::Scaling::proportional) turn_proportionally(config, input, out);
  return out;
}

void turn_proportionally(JsonFields& config, const RopeInput& input, RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::proportional;
  rope.turning_dim = std::exchange(rope.rotary_dim, input.dims);
  if (input.dims % 2 != 0)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: heads of {} have {} dimensions (head_dim, global_head_dim), "
                        "but must have an even number, since proportional rotation pairs them all",
                        input.layers, input.dims));
}

}  // namespace hocket
