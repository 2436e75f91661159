// Helpers for tests: settings and forms of the models in this repository.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "base/source_dir_testing.h"
#include "core/server_settings.h"
#include "engine/plan/cost.h"
#include "engine/plan/model_choice.h"

namespace hocket::testing {

inline constexpr int64_t kGb = 1'000'000'000;

inline ServerSettings settings_for(const std::filesystem::path& model) {
  ServerSettings settings;
  settings.model.model_path = (source_dir() / model).string();
  settings.memory.max_total_tokens = 8192;
  settings.memory.max_running_requests = 32;
  settings.compute.cpu_bind = "none";
  settings.scheduler.overlap_schedule = "off";  // `auto` would follow measured times
  return settings;
}

// Chooses the form of a model by its config.json; `folder` is absolute or relative to tests/.
inline ModelChoice choice_of(const std::filesystem::path& folder, ServerSettings settings = {}) {
  settings.model.model_path = (source_dir() / "tests" / folder).string();
  auto choice = choose_model_form(settings);
  EXPECT_TRUE(choice.has_value()) << folder << describe(choice.error());
  return choice ? *choice : ModelChoice{};
}

inline ModelCost cost_of(const ModelChoice& choice) {
  auto cost = ModelCost::measure(choice);
  EXPECT_TRUE(cost.has_value()) << describe(cost.error());
  return *std::move(cost);
}

}  // namespace hocket::testing
