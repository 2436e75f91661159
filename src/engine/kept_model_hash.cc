#include "engine/kept_model_hash.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_owner.h"
#include "base/log.h"
#include "base/text_file.h"
#include "base/whole_file.h"
#include "compute/kv/page_folders.h"
#include "engine/lockstep/model_hash.h"
#include "engine/lockstep/sha256.h"
#include "engine/pages/file_store.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLine = 1024;
constexpr int kHashDigits = 32;  // a state has as many as a hash
constexpr auto kLookAgain = std::chrono::milliseconds(100);

// The places, sizes and times of the files of weights.
struct FileStates {
  std::string text;  // one word, equal only if nothing has changed
  int64_t bytes = 0;
  std::chrono::seconds newest{};  // the last change, since 1970
};

Result<FileStates> look_at(const std::vector<fs::path>& files) {
  FileStates all;
  Sha256 sum;  // one short word, also for hundreds of files
  sum.add(fmt::format("level {}", kModelHashLevel));
  for (const fs::path& file : files) {
    struct stat info{};
    if (stat(file.c_str(), &info) != 0)
      return fail(ErrorCode::io, "cannot read the size and time of {}: {}", file.string(),
                  std::generic_category().message(errno));
    sum.add(file.filename().string());
    sum.add(fmt::format("{} {} {} {}.{} {}.{}", info.st_dev, info.st_ino, info.st_size,
                        info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                        info.st_ctim.tv_nsec));
    all.bytes += info.st_size;
    all.newest = std::max(all.newest, std::chrono::seconds(info.st_ctim.tv_sec));
  }
  all.text = sum.digits(kHashDigits / 2);
  return all;
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && std::ranges::all_of(text, [](char letter) {
           return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
         });
}

// The kept lines, each a state and its hash; damaged ones are left out.
std::vector<std::pair<std::string, std::string>> read_lines(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> lines;
  struct stat info{};
  if (stat(path.c_str(), &info) != 0 || !check_owner(path, info)) return lines;
  const auto text = read_text_file(path, KeptModelHash::kMaxModels * kMaxLine);
  if (!text) return lines;
  std::istringstream all(*text);
  for (std::string line; std::getline(all, line);) {
    if (line.size() != 2 * kHashDigits + 1 || line[kHashDigits] != ' ') continue;
    std::string state = line.substr(0, kHashDigits), hash = line.substr(kHashDigits + 1);
    if (is_hash(state) && is_hash(hash)) lines.emplace_back(std::move(state), std::move(hash));
  }
  return lines;
}

// Returns all but the hash of the weights, which are not read.
Result<HashedModel> look_at_model(const ModelSettings& model) {
  HashedModel found;
  HOCKET_TRY(const std::vector<fs::path> files, weight_files(model));
  HOCKET_TRY(const FileStates weights, look_at(files));
  found.weight_files = weights.text;
  HOCKET_TRY(found.texts, hash_texts(model));
  return found;
}

std::unexpected<Error> files_changed(const ModelSettings& model) {
  return fail(error(ErrorCode::io, "the files of {} changed while they were read", model.model_path)
                  .with_fix("start again when they are complete"));
}

}  // namespace

// Looks for the hash, and locks the folder before, so that of several processes one hashes.
KeptModelHash::Found KeptModelHash::find(const std::string& state) const {
  Found found;
  std::error_code problem;
  // One that is there keeps its permissions, as /dev/shm.
  if (!fs::is_directory(folder_, problem)) make_private_folder(folder_);
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  found.lock = Fd(::open((folder_ / kLockFile).c_str(), kFlags, 0600));
  if (found.lock && flock(found.lock.get(), LOCK_EX | LOCK_NB) != 0)
    found.others_hash = errno == EWOULDBLOCK;
  const auto lines = read_lines(folder_ / kFile);
  const auto line = std::ranges::find(lines, state, [](const auto& one) { return one.first; });
  if (line == lines.end()) return found;
  found.hash = line->second;
  if (!found.others_hash && line + 1 != lines.end()) keep(state, found.hash);
  return found;
}

bool KeptModelHash::keep(const std::string& state, const std::string& hash) const {
  auto lines = read_lines(folder_ / kFile);
  std::erase_if(lines, [&](const auto& line) { return line.first == state; });
  lines.emplace_back(state, hash);
  const size_t first = lines.size() - std::min(lines.size(), kMaxModels);
  std::string text;
  for (const auto& line : std::span(lines).subspan(first))
    text += fmt::format("{} {}\n", line.first, line.second);
  return write_whole_file(folder_ / kFile, {std::as_bytes(std::span(text))}) == 0;
}

Result<std::string> KeptModelHash::find_or_compute(const ModelSettings& model) const {
  HOCKET_TRY(const std::vector<fs::path> files, weight_files(model));
  if (files.empty()) return hash_weights(model, HashedWeights::all);
  HOCKET_TRY(const FileStates before, look_at(files));
  // The folder may lie on a mount that has stopped answering. Then nothing is kept there either.
  auto calls = folder_.empty() ? nullptr : FileStore::calls_for(folder_, FileStore::kOpenLimit);
  Found found;
  const TimePoint until = RealClock().now() + FileStore::kOpenLimit +
                          FileStore::time_of(static_cast<size_t>(before.bytes));
  while (calls) {
    auto looked = calls->run<Found>(
        [self = *this, state = before.text] { return Result<Found>(self.find(state)); });
    if (!looked) {
      calls.reset();
      break;
    }
    found = *std::move(looked);
    if (!found.hash.empty()) return found.hash;
    if (!found.others_hash || RealClock().now() >= until) break;
    std::this_thread::sleep_for(kLookAgain);
  }
  const TimePoint begin = RealClock().now();
  HOCKET_TRY(std::string hash, hash_weights(model, HashedWeights::all));
  const double seconds = to_seconds(RealClock().now() - begin);
  HOCKET_TRY(const FileStates after, look_at(files));
  if (after.text != before.text) return files_changed(model);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  bool is_kept = false;
  if (calls && before.newest + settled_ <= now)
    is_kept = calls
                  ->run<bool>([self = *this, state = before.text, hash] {
                    return Result<bool>(self.keep(state, hash));
                  })
                  .value_or(false);
  log::info(
      "stored prefixes: the model's {:.2f} GB were hashed in {:.1f} s, so that no page of another "
      "model is taken; {}",
      static_cast<double>(before.bytes) * 1e-9, seconds,
      is_kept ? fmt::format("the hash is kept in {}", folder_.string())
              : "the next start does it again");
  return hash;
}

Result<HashedModel> hash_for_pages(const ServerSettings& settings) {
  if (!has_cache_tier(settings)) return HashedModel{};
  HOCKET_TRY(HashedModel hashed, look_at_model(settings.model));
  const std::string& pages = settings.memory.kv_cache_dir;
  const KeptModelHash kept(pages.empty() ? settings.model.weight_cache : pages);
  HOCKET_TRY(hashed.weights, kept.find_or_compute(settings.model));
  return hashed;
}

Result<void> check_unchanged(const ModelSettings& model, const HashedModel& hashed) {
  if (hashed.texts.empty()) return {};
  HOCKET_TRY(const HashedModel now, look_at_model(model));
  if (now.weight_files != hashed.weight_files || now.texts != hashed.texts)
    return files_changed(model);
  return {};
}

}  // namespace hocket
