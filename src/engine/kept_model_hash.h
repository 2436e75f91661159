// Keeps the hash over all bytes of a model's weights, which stored pages are named by, in a small
// file: as long as no file of the weights changes, a start need not read them for it.
// Thread: any.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

#include "base/result.h"
#include "core/server_settings.h"

namespace hocket {

class KeptModelHash {
 public:
  // The kept file's name. It has a line for each of at most kMaxModels states of files, the one
  // used last at the end.
  static constexpr const char* kFile = "model-hashes";
  static constexpr size_t kMaxModels = 64;
  // A file that has changed this short a time ago may change again with the same time, since file
  // systems round. Its hash is not kept.
  static constexpr std::chrono::seconds kSettled{2};

  // folder: where the hash is kept, made if it is missing; empty: nowhere.
  explicit KeptModelHash(std::filesystem::path folder, std::chrono::seconds settled = kSettled)
      : folder_(std::move(folder)), settled_(settled) {}

  // Returns hash_weights() of all bytes: the kept one if place, size, and times of modification and
  // of change of all files of the weights are the same as then, else it hashes them and says how
  // long that took. A file that cannot be read or written, or that others may write, only costs
  // that time. Errors: those of hash_weights(); io if a file changes meanwhile.
  Result<std::string> find_or_compute(const ModelSettings& model) const;

 private:
  std::string find(const std::string& state) const;
  bool keep(const std::string& state, const std::string& hash) const;
  const std::filesystem::path folder_;
  const std::chrono::seconds settled_;
};

// Returns the hash for the pages of the service, kept in --kv-cache-dir or else --weight-cache;
// empty if the service keeps no pages and asks for none. Errors: as above.
Result<std::string> hash_for_pages(const ServerSettings& settings);

}  // namespace hocket
