// Keeps the hash over all bytes of a model's weights, which stored pages are named by, in a small
// file: as long as no file of the weights changes, a start need not read them for it.
// Thread: any.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

#include "base/result.h"
#include "cluster/socket.h"
#include "core/server_settings.h"

namespace hocket {

class KeptModelHash {
 public:
  // The kept file's name. It has a line for each of at most kMaxModels states of files, the one
  // used last at the end.
  static constexpr const char* kFile = "model-hashes";
  // Locked by the process that hashes: others that start with it wait for its hash.
  static constexpr const char* kLockFile = "model-hashes.lock";
  static constexpr size_t kMaxModels = 64;
  // A file that has changed this short a time ago may change again with the same time, since file
  // systems round. Its hash is not kept.
  static constexpr std::chrono::seconds kSettled{2};

  // folder: where the hash is kept, made if it is missing; empty: nowhere.
  explicit KeptModelHash(std::filesystem::path folder, std::chrono::seconds settled = kSettled)
      : folder_(std::move(folder)), settled_(settled) {}

  // Returns hash_weights() of all bytes: the kept one if place, size, and times of modification and
  // of change of all files of the weights are the same as then, else it hashes them and says how
  // long that took. If another process hashes already, it waits for that, as long as a slow disk
  // may take. A file that cannot be read or written, or that others may write, only costs that
  // time. Errors: those of hash_weights(); io if a file changes meanwhile.
  Result<std::string> find_or_compute(const ModelSettings& model) const;

 private:
  struct Found {
    std::string hash;          // empty: none is kept
    Fd lock;                   // kLockFile is locked while it lives; none if the folder takes none
    bool others_hash = false;  // another process has the lock
  };
  Found find(const std::string& state) const;
  bool keep(const std::string& state, const std::string& hash) const;
  const std::filesystem::path folder_;
  const std::chrono::seconds settled_;
};

// The files of a model when they were hashed; empty if the service keeps no pages and asks for
// none.
struct HashedModel {
  std::string weights;       // the hash of all bytes of the weights
  std::string texts;         // hash_texts()
  std::string weight_files;  // the places, sizes and times of the files of weights

  // Returns the words that name the model in what stored pages depend on.
  std::string name() const { return texts + " " + weights; }
};
// Returns the hashes; that of the weights is kept in --kv-cache-dir or else --weight-cache. Errors:
// as above.
Result<HashedModel> hash_for_pages(const ServerSettings& settings);
// Call it when the weights are loaded: those are the ones that were hashed. Errors: io if a file
// has changed since.
Result<void> check_unchanged(const ModelSettings& model, const HashedModel& hashed);

}  // namespace hocket
