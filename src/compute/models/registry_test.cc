// Tensors of published files that no part of the model reads and that are known to be of no use.
#include <gtest/gtest.h>

#include "compute/models/family.h"

namespace hocket {
namespace {

TEST(Registry, LayersBehindTheLastAreModulesAlsoWhereTheyAreNotLoaded) {
  ModelConfig model;
  model.num_layers = 45;
  for (const char* family : {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"}) {
    model.architecture = family;
    EXPECT_TRUE(is_passed_over(model, "model.layers.45.enorm.weight")) << family;
    EXPECT_TRUE(is_passed_over(model, "model.layers.47.self_attn.q_proj.weight")) << family;
    EXPECT_FALSE(is_passed_over(model, "model.layers.44.enorm.weight")) << family;
    EXPECT_FALSE(is_passed_over(model, "model.other.weight")) << family;
    EXPECT_FALSE(has_module(model)) << family;
  }
  model.architecture = "Qwen3MoeForCausalLM";
  EXPECT_FALSE(is_passed_over(model, "model.layers.45.input_layernorm.weight"));
}

TEST(Registry, ScalesOfRowsArePassedOver) {
  ModelConfig model;
  model.architecture = "Mistral4ForCausalLM";
  model.num_layers = 1;
  for (const char* tensor : {"model.layers.0.self_attn.o_proj.activation_scale",
                             "model.layers.0.mlp.experts.gate_up_proj_activation_scale",
                             "model.layers.0.self_attn.o_proj.input_scale"})
    EXPECT_TRUE(is_passed_over(model, tensor)) << tensor;
  EXPECT_FALSE(is_passed_over(model, "model.layers.0.self_attn.o_proj.weight_scale_inv"));
}

}  // namespace
}  // namespace hocket
