// The tokens of saved sessions, a file each, in a folder beside the pages that they name:
//
//   folder/OWNER/NAME   | magic, form, owner, name, namespace, number of tokens | tokens |
//                       | SHA-256 of all that |
//
// A file is whole or absent. One that is damaged, too long, of another model, owner or name reads
// as absent.   Thread: any, one at a time for each name; other processes may use the folder, too.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "compute/kv/page_files.h"
#include "policy/scheduler/sessions.h"

namespace hocket {

struct SessionFileName {
  SessionKey owner;  // has at most kMax sessions; zero: those that all share
  SessionKey name;
};

class SessionFiles {
 public:
  // Files of an owner, and their bytes; writes at the same time may exceed them by a file each.
  // They stay until they are deleted by name, or when no store has pages of their form
  // (remove_form()).
  static constexpr int kMax = 4096;
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;
  static constexpr size_t kMaxTokens = 1 << 24;

  // `form`: a hash of all that the pages depend on, beside their tokens.
  SessionFiles(std::filesystem::path folder, const PageKey& form)
      : folder_(std::move(folder)), form_(form) {}

  // Returns the size of the file. On an error an older file stays as it was. Errors: io, whose path
  // is in the log alone; queue_full beyond kMax files or kMaxBytes; request_too_big beyond
  // kMaxTokens.
  Result<int64_t> write(const SessionFileName& name, const SessionTokens& session) const;
  // Notes the use of the file as its time.
  std::optional<SessionTokens> read(const SessionFileName& name) const;
  // Returns the number of tokens that were saved under the name, by the head and the size of the
  // file alone, and changes nothing.
  std::optional<int64_t> find(const SessionFileName& name) const;
  // Returns false if there was none.
  bool remove(const SessionFileName& name) const;

 private:
  std::filesystem::path folder_of(const SessionFileName& name) const;
  std::filesystem::path path_of(const SessionFileName& name) const;
  std::string text_of(const SessionFileName& name, const SessionTokens& session) const;

  const std::filesystem::path folder_;
  const PageKey form_;
};

}  // namespace hocket
