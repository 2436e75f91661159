// The files of pages in a folder, by name, and the folders of other forms beside it
// (page_files.h).   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/result.h"
#include "compute/kv/folder_lock.h"
#include "compute/kv/page_header.h"

namespace hocket {

// Beside its pages a form's folder has the lists of saved sessions, OWNER/NAME below the first, and
// the speed of its prompts.
inline constexpr const char* kSessionsFolder = "sessions";
inline constexpr const char* kSpeedFile = "prompt-speed";
// Says that another store may have the form's pages, too. A page that no process reads leaves that
// store within kOtherStoreKeeps.
inline constexpr const char* kOtherStoreFile = "other-store";
inline constexpr std::chrono::hours kOtherStoreKeeps{30 * 24};

// Makes the folder and those above it. No other user may read or change what clients wrote. Returns
// the error's number, or 0.
int make_private_folder(const std::filesystem::path& folder);
// Makes `below`, and `folder` around it if it was deleted while the server runs. Returns the
// error's number, or 0.
int make_folders(const std::filesystem::path& folder, const std::filesystem::path& below);
// Errors: io, if another user could put pages into a form's folder, or another folder in its place
// below the one around it.
Result<void> check_form_owner(const std::filesystem::path& folder);

// Returns true if a folder of this name has the pages of a form.
bool is_form_name(std::string_view name);
// Returns the path of a page's file below that folder.
std::filesystem::path path_of_page(const std::filesystem::path& folder, const PageKey& key);

struct FoundPage {
  std::filesystem::file_time_type used;
  PageKey key{};
  int64_t bytes = 0;
};
// Finds at most max_files files of pages in a folder, and deletes abandoned ones. Errors: those of
// the system; what can be listed is returned all the same.
std::vector<FoundPage> find_pages(const std::filesystem::path& folder, size_t max_files,
                                  std::error_code& problem);
// Deletes abandoned files where no page is: among the saved sessions of a form, and in the folder
// around it, which has the hashes of models.
void delete_abandoned(const std::filesystem::path& form);
// Deletes abandoned files in one of the kSweepParts parts of a form's folder, which together hold
// all its pages and sessions, and the folder around it. A part has 1/256 of the pages, or none.
inline constexpr size_t kSweepParts = 257;
void sweep_part(const std::filesystem::path& form, size_t part);
// Finds the folders beside that of a form which have pages of other forms, and which no process
// uses. Those that another user could change are left alone, since a link in one leads anywhere.
std::vector<std::filesystem::path> find_idle_folders(const std::filesystem::path& own);
// Writes the form's kOtherStoreFile, as far as its folder can be written.
void note_shared(const std::filesystem::path& folder);
// Returns true if a form without a page in its folder was left for its saved sessions, and no
// process has begun to use it since `recent`.
bool was_left_for_lists(const std::filesystem::path& folder,
                        std::filesystem::file_time_type recent);
// Deletes what a form leaves when its last page is deleted: its saved sessions, the speed of its
// prompts, and the folder, unless it has files of others. If another store may have the pages,
// sessions stay that were saved or restored within kOtherStoreKeeps, and all else with them. Stops
// if a page is there all the same, and as soon as a process wants the folder.
// Precondition: `alone` holds it.
void remove_form(const std::filesystem::path& folder, const FolderLock& alone);

}  // namespace hocket
