// Helpers for tests that read a config.json given as text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compute/weights/hf_config.h"

namespace hocket {

// Returns the model that `json` describes; the test fails if it is refused.
inline ModelConfig parsed(const std::string& json) {
  const auto model = parse_hf_config(json);
  EXPECT_TRUE(model.has_value()) << describe(model.error());
  return model.value_or(ModelConfig{});
}

inline int64_t moe_layers(const ModelConfig& model) {
  return std::ranges::count(model.layer_is_moe, true);
}

// Returns why `json` is refused; the test fails if it is not, or if no remedy is named.
inline Error refused(const std::string& json) {
  const auto model = parse_hf_config(json);
  EXPECT_FALSE(model.has_value()) << json;
  const Error why = model ? Error{} : model.error();
  EXPECT_FALSE(why.fix.empty()) << describe(why);
  return why;
}

// Returns `json` with `from`, which must occur, replaced by `to`.
inline std::string with(std::string json, const std::string& from, const std::string& to) {
  const size_t at = json.find(from);
  EXPECT_NE(at, json.npos) << from;
  return at == json.npos ? json : json.replace(at, from.size(), to);
}

}  // namespace hocket
