// The tokens of saved sessions, a file each, in a folder beside the pages that they name:
//
//   | magic, namespace, number of tokens | tokens | SHA-256 of all that |
//
// A file is whole or absent; a damaged one reads as absent.   Thread: any, one at a time.
#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "policy/scheduler/sessions.h"

namespace hocket {

class SessionFiles {
 public:
  static constexpr int kMost = 4096;
  static constexpr size_t kMostTokens = 1 << 24;

  explicit SessionFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Returns the size of the file. Errors: io; queue_full beyond kMost files.
  Result<int64_t> write(SessionKey name, const SessionTokens& session) const;
  std::optional<SessionTokens> read(SessionKey name) const;
  // Returns false if there was none.
  bool remove(SessionKey name) const;

 private:
  std::filesystem::path path_of(SessionKey name) const;

  const std::filesystem::path folder_;
};

}  // namespace hocket
