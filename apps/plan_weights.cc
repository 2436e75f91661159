#include "apps/plan_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "apps/plan_numbers.h"
#include "base/show_bytes.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

std::string format_of(const PartSize& size) {
  return size.format ? std::string(weight_format_name(*size.format)) : "several";
}

}  // namespace

void print_weights(const ModelCost& cost) {
  fmt::print("\nweights             parameters      memory          format\n");
  const auto row = [&](std::string_view name, const PartSize& size, int64_t all) {
    std::string words(name);
    std::ranges::replace(words, '_', ' ');
    fmt::print("  {:<18}{:>10}{:>12}{:>6.1f} %  {:>8}\n", words, parameters(size.parameters),
               show_bytes(size.bytes),
               100.0 * static_cast<double>(size.bytes) / static_cast<double>(all), format_of(size));
  };
  for (int i = 0; i < kNumWeightParts; ++i) {
    const auto part = static_cast<WeightPart>(i);
    if (cost.part(part).bytes > 0)
      row(weight_part_name(part), cost.part(part), cost.weight_bytes());
  }
  fmt::print("  {:<18}{:>10}{:>12}\n", "total", parameters(cost.parameters()),
             show_bytes(cost.weight_bytes()));
}

void print_changes(std::span<const SettingChange> changes) {
  for (const SettingChange& change : changes)
    print_line("changed", "",
               fmt::format("{} {} -> {}: {}", change.flag, change.from, change.to, change.why));
}

Json parts_json(const ModelCost& cost) {
  Json parts;
  for (int i = 0; i < kNumWeightParts; ++i) {
    const auto part = static_cast<WeightPart>(i);
    const PartSize& size = cost.part(part);
    parts[std::string(weight_part_name(part))] = {
        {"bytes", size.bytes},
        {"parameters", size.parameters},
        {"format", size.bytes > 0 ? Json(format_of(size)) : Json()}};
  }
  return parts;
}

}  // namespace hocket
