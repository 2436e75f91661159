#include "base/file_owner.h"

#include <unistd.h>

namespace hocket {
namespace {

bool is_trusted(uid_t owner) {
  return owner == 0 || owner == geteuid();
}

std::string_view other_choice(const struct stat& info) {
  return S_ISREG(info.st_mode) ? "remove it" : "name a folder below it, which hocket makes";
}

// `command` is chown, with the flag that a link needs.
std::unexpected<Error> belongs_to_other(const std::filesystem::path& path, const struct stat& info,
                                        std::string_view command = "chown") {
  return fail(error(ErrorCode::io, "{} belongs to the user {}, who could change what is read there",
                    path.string(), info.st_uid)
                  .with_fix(fmt::format("{} {} {}, or {}", command, geteuid(), path.string(),
                                        other_choice(info))));
}

// A group that has the number of the user is the user's own, as useradd makes it. Kubernetes lets
// it write to volumes (fsGroup), and a umask of 002 to what the user makes.
mode_t write_bits_of_others(const struct stat& info) {
  const bool is_own_group = info.st_gid == geteuid() && info.st_gid == getegid();
  return is_own_group ? S_IWOTH : S_IWGRP | S_IWOTH;
}

}  // namespace

Result<void> check_owner(const std::filesystem::path& path, const struct stat& info,
                         OthersWrite others) {
  if (!is_trusted(info.st_uid)) return belongs_to_other(path, info);
  const bool is_protected = others == OthersWrite::if_sticky && (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & write_bits_of_others(info)) == 0 || is_protected) return {};
  return fail(
      error(ErrorCode::io,
            "{} can be written by other users (mode {:04o}), who could change what is "
            "read there",
            path.string(), info.st_mode & 07777U)
          .with_fix(fmt::format("chmod go-w {}, or {}", path.string(), other_choice(info))));
}

Result<void> check_folder_owner(const std::filesystem::path& path, OthersWrite others) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (S_ISLNK(info.st_mode)) {
    if (!is_trusted(info.st_uid)) return belongs_to_other(path, info, "chown -h");
    if (stat(path.c_str(), &info) != 0) return {};
  }
  return check_owner(path, info, others);
}

}  // namespace hocket
