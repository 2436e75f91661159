#include "server/access/admin_folder.h"

#include <algorithm>
#include <filesystem>

namespace hocket {

bool is_plain_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxPlainName && !name.starts_with('.') &&
         std::ranges::all_of(name, fits);
}

Result<std::string> admin_folder(const std::string& root, std::string_view name,
                                 std::string_view field) {
  namespace fs = std::filesystem;
  const auto refuse = [&](ErrorCode code, const std::string& what, const std::string& fix) {
    return fail(error(code, "{}", what).with_fix(fix).with_param(std::string(field)));
  };
  if (root.empty())
    return refuse(ErrorCode::invalid_request, "this server writes no files that admins ask for",
                  "start it with --admin-folder DIR");
  if (!name.empty() && !is_plain_name(name))
    return refuse(ErrorCode::invalid_request,
                  fmt::format("{} is the name of a folder in --admin-folder", field),
                  fmt::format("up to {} letters, digits, '-', '_' and '.', which is not the first",
                              kMaxPlainName));
  const fs::path folder = name.empty() ? fs::path(root) : fs::path(root) / name;
  std::error_code why, ignored;
  fs::create_directories(root, why);
  if (!why && !name.empty()) fs::create_directory(folder, why);
  // The operator's own folder may be a link; a folder below it may not.
  const auto found =
      name.empty() ? fs::status(folder, ignored) : fs::symlink_status(folder, ignored);
  if (fs::is_directory(found)) return folder.string();
  const std::string fix = "another name, or another --admin-folder";
  if (fs::exists(found))
    return refuse(ErrorCode::invalid_request,
                  fmt::format("{} is there, and no folder", folder.string()), fix);
  return refuse(ErrorCode::io, fmt::format("cannot make {}: {}", folder.string(), why.message()),
                fix);
}

}  // namespace hocket
