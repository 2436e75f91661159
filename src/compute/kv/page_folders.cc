#include "compute/kv/page_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_owner.h"
#include "base/log.h"
#include "base/whole_file.h"

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

bool is_folder(const fs::path& path) {
  std::error_code gone;
  return fs::symlink_status(path, gone).type() == fs::file_type::directory;
}

// Deletes those that were last used before `oldest`. Returns false if others are there, or if a
// process wants the folder of the form before all of them are deleted.
bool remove_sessions(const fs::path& sessions, fs::file_time_type oldest, const FolderLock& alone) {
  if (!is_folder(sessions)) return true;
  bool are_all_deleted = true;
  std::error_code problem;
  fs::directory_iterator owners(sessions, problem);
  for (; !problem && owners != fs::directory_iterator(); owners.increment(problem)) {
    if (!is_folder(owners->path())) continue;
    std::error_code gone;
    fs::directory_iterator files(owners->path(), gone);
    for (; !gone && files != fs::directory_iterator(); files.increment(gone)) {
      if (alone.is_wanted()) return false;
      std::error_code unknown;
      const bool is_kept = files->last_write_time(unknown) >= oldest || unknown;
      if (!is_kept) unlink(files->path().c_str());
      are_all_deleted &= !is_kept;
    }
    rmdir(owners->path().c_str());
  }
  rmdir(sessions.c_str());
  return are_all_deleted;
}

// Returns the time since which a form's sessions may have pages, when its folder has none. A disk
// that cannot be asked deletes none of them.
fs::file_time_type sessions_since(const fs::path& folder) {
  std::error_code gone;
  return fs::exists(folder / kOtherStoreFile, gone) || gone
             ? fs::file_time_type::clock::now() - kOtherStoreKeeps
             : fs::file_time_type::max();
}

void delete_abandoned_in(const fs::path& folder) {
  std::error_code problem;
  fs::directory_iterator files(folder, problem);
  for (; !problem && files != fs::directory_iterator(); files.increment(problem))
    if (is_abandoned_file(files->path())) unlink(files->path().c_str());
}

}  // namespace

int make_private_folder(const fs::path& folder) {
  fs::path made;
  std::error_code problem;
  for (const fs::path& part : folder) {
    made /= part;
    if (fs::is_directory(made, problem)) continue;
    // Whatever the umask is, no other user may write there.
    if (mkdir(made.c_str(), 0755) == 0) continue;
    if (errno != EEXIST) return errno;
    if (!fs::is_directory(made, problem)) return ENOTDIR;
  }
  // A folder of another user stays as it is, which open() finds out.
  fs::permissions(folder, fs::perms::owner_all, problem);
  return 0;
}

int make_folders(const fs::path& folder, const fs::path& below) {
  if (mkdir(below.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT) return errno;
  if (const int why = make_private_folder(folder); why != 0) return why;
  return mkdir(below.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

Result<void> check_form_owner(const fs::path& folder) {
  const fs::path around = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  auto checked = check_folder_owner(around, OthersWrite::if_sticky);
  if (checked) checked = check_folder_owner(folder);
  if (!checked) checked.error().param = "kv-cache-dir";
  return checked;
}

bool is_form_name(std::string_view name) {
  return name.size() == kFolderDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

fs::path path_of_page(const fs::path& folder, const PageKey& key) {
  std::string name;
  for (const uint8_t byte : key) name += fmt::format("{:02x}", byte);
  return folder / name.substr(0, 2) / name;
}

std::vector<FoundPage> find_pages(const fs::path& folder, size_t max_files,
                                  std::error_code& problem) {
  std::vector<FoundPage> found;
  const auto add = [&](const fs::directory_entry& file) {
    std::error_code gone;  // another process may have deleted it
    const auto used = file.last_write_time(gone);
    if (gone || !file.is_regular_file(gone)) return;
    const auto bytes = static_cast<int64_t>(file.file_size(gone));
    if (is_abandoned_file(file.path())) fs::remove(file.path(), gone);
    const auto key = key_of_name(file.path().filename().string());
    if (key && path_of_page(folder, *key) == file.path() && found.size() < max_files)
      found.push_back({used, *key, bytes});
  };
  std::error_code first;  // an error of one folder hides no other
  fs::directory_iterator entries(folder, problem);
  for (; !problem && entries != fs::directory_iterator(); entries.increment(problem)) {
    add(*entries);
    if (!is_folder(entries->path())) continue;
    std::error_code below;
    fs::directory_iterator files(entries->path(), below);
    for (; !below && files != fs::directory_iterator(); files.increment(below)) add(*files);
    if (below && below != std::errc::no_such_file_or_directory && !first) first = below;
  }
  if (!problem) problem = first;
  return found;
}

void delete_abandoned(const fs::path& form) {
  if (is_form_name(form.filename().string())) delete_abandoned_in(form.parent_path());
  std::error_code problem;
  fs::directory_iterator owners(form / kSessionsFolder, problem);
  for (; !problem && owners != fs::directory_iterator(); owners.increment(problem))
    if (is_folder(owners->path())) delete_abandoned_in(owners->path());
}

void sweep_part(const fs::path& form, size_t part) {
  if (part < kSweepParts - 1) return delete_abandoned_in(form / fmt::format("{:02x}", part));
  delete_abandoned_in(form);
  delete_abandoned(form);
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
        check_folder_owner(entries->path()) && FolderLock::alone(entries->path()))
      idle.push_back(entries->path());
  }
  return idle;
}

void note_shared(const fs::path& folder) {
  static_cast<void>(write_whole_file(folder / kOtherStoreFile, {}));
}

bool was_left_for_lists(const fs::path& folder, fs::file_time_type recent) {
  std::error_code gone;
  const auto noted = fs::last_write_time(folder / kOtherStoreFile, gone);
  return !gone && noted < recent;
}

void remove_form(const fs::path& folder, const FolderLock& alone) {
  for (int i = 0; i < 256; ++i)
    if (rmdir((folder / fmt::format("{:02x}", i)).c_str()) != 0 && errno != ENOENT) return;
  if (!remove_sessions(folder / kSessionsFolder, sessions_since(folder), alone)) return;
  if (alone.is_wanted()) return;
  for (const char* name : {kSpeedFile, kOtherStoreFile, FolderLock::kFile})
    unlink((folder / name).c_str());
  rmdir(folder.c_str());
}

}  // namespace hocket
