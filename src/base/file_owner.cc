#include "base/file_owner.h"

#include <unistd.h>

namespace hocket {
namespace {

bool is_trusted(uid_t owner) {
  return owner == 0 || owner == geteuid();
}

std::unexpected<Error> belongs_to_other(const std::filesystem::path& path, uid_t owner) {
  return fail(
      error(ErrorCode::io, "{} belongs to the user {}, who could change what is read there",
            path.string(), owner)
          .with_fix(fmt::format("chown {} {}, or name another folder", geteuid(), path.string())));
}

}  // namespace

Result<void> check_owner(const std::filesystem::path& path, const struct stat& info,
                         OthersWrite others) {
  if (!is_trusted(info.st_uid)) return belongs_to_other(path, info.st_uid);
  const bool is_protected = others == OthersWrite::if_sticky && (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || is_protected) return {};
  return fail(error(ErrorCode::io,
                    "{} can be written by other users (mode {:04o}), who could change what is "
                    "read there",
                    path.string(), info.st_mode & 07777U)
                  .with_fix(fmt::format("chmod go-w {}, or name another folder", path.string())));
}

Result<void> check_folder_owner(const std::filesystem::path& path, OthersWrite others) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (S_ISLNK(info.st_mode)) {
    if (!is_trusted(info.st_uid)) return belongs_to_other(path, info.st_uid);
    if (stat(path.c_str(), &info) != 0) return {};
  }
  return check_owner(path, info, others);
}

}  // namespace hocket
