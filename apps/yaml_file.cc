#include "apps/yaml_file.h"

#include <yaml-cpp/yaml.h>

namespace hocket {

Result<std::vector<std::pair<std::string, std::string>>> read_yaml_values(const std::string& path) {
  try {
    const YAML::Node root = YAML::LoadFile(path);
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
  } catch (const YAML::BadFile&) {
    return fail(ErrorCode::io, "cannot read {}", path);
  } catch (const YAML::Exception& e) {
    return fail(ErrorCode::bad_value, "{}:{}: {}", path, e.mark.line + 1, e.msg);
  }
}

}  // namespace hocket
