#include "compute/kv/page_folders.h"

#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/whole_file.h"
#include "compute/kv/folder_use.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFolderDigits = 16;  // the length of a form folder's name

std::optional<PageKey> key_of_name(std::string_view name) {
  PageKey key;
  if (name.size() != 2 * key.size()) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < key.size(); ++i) {
    const int high = digit(name[2 * i]), low = digit(name[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return key;
}

bool is_form_name(std::string_view name) {
  return name.size() == kFolderDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

fs::path path_of_page(const fs::path& folder, const PageKey& key) {
  std::string name;
  for (const uint8_t byte : key) name += fmt::format("{:02x}", byte);
  return folder / name.substr(0, 2) / name;
}

std::vector<FoundPage> find_pages(const fs::path& folder, size_t max_files,
                                  std::error_code& problem) {
  std::vector<FoundPage> found;
  fs::recursive_directory_iterator entries(folder, problem);
  for (; !problem && entries != fs::recursive_directory_iterator(); entries.increment(problem)) {
    if (entries.depth() > 0) entries.disable_recursion_pending();
    std::error_code gone;  // another process may have deleted it
    const auto used = entries->last_write_time(gone);
    const std::string name = entries->path().filename();
    if (gone || !entries->is_regular_file(gone)) continue;
    const auto bytes = static_cast<int64_t>(entries->file_size(gone));
    if (is_abandoned_file(entries->path())) fs::remove(entries->path(), gone);
    const auto key = key_of_name(name);
    if (key && path_of_page(folder, *key) == entries->path() && found.size() < max_files)
      found.push_back({used, *key, bytes});
  }
  return found;
}

std::vector<fs::path> find_idle_folders(const fs::path& own) {
  std::vector<fs::path> idle;
  if (!is_form_name(own.filename().string())) return idle;
  std::error_code problem;
  fs::directory_iterator entries(own.parent_path(), problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    std::error_code gone;
    if (entries->path() != own && is_form_name(entries->path().filename().string()) &&
        entries->symlink_status(gone).type() == fs::file_type::directory &&
        FolderUse::alone(entries->path()))
      idle.push_back(entries->path());
  }
  return idle;
}

}  // namespace hocket
