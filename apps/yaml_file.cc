#include "apps/yaml_file.h"

#include <yaml-cpp/yaml.h>

#include "base/text_file.h"

namespace hocket {

constexpr size_t kMaxYamlBytes = 1 << 20;

Result<std::vector<std::pair<std::string, std::string>>> read_yaml_values(const std::string& path) {
  try {
    HOCKET_TRY(const std::string text, read_text_file(path, kMaxYamlBytes));
    const YAML::Node root = YAML::Load(text);
    std::vector<std::pair<std::string, std::string>> values;
    if (root.IsNull()) return values;
    if (!root.IsMap()) return fail(ErrorCode::bad_value, "{} is not a map of settings", path);
    for (const auto& entry : root) {
      if (!entry.second.IsScalar())
        return fail(ErrorCode::bad_value, "{}:{}: {} must be a single value", path,
                    entry.second.Mark().line + 1, entry.first.as<std::string>());
      values.emplace_back(entry.first.as<std::string>(), entry.second.as<std::string>());
    }
    return values;
  } catch (const YAML::Exception& e) {
    return fail(ErrorCode::bad_value, "{}:{}: {}", path, e.mark.line + 1, e.msg);
  }
}

}  // namespace hocket
