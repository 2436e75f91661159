#include "engine/kept_model_hash.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_owner.h"
#include "base/log.h"
#include "base/mix.h"
#include "base/text_file.h"
#include "base/whole_file.h"
#include "compute/kv/page_folders.h"
#include "engine/lockstep/model_hash.h"
#include "engine/pages/file_store.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLine = 1024;

// The places, sizes and times of the files of weights.
struct FileStates {
  std::string text;  // one word, equal only if nothing has changed
  int64_t bytes = 0;
  std::chrono::seconds newest{};  // the last change, since 1970
};

Result<FileStates> look_at(const std::vector<fs::path>& files) {
  FileStates all;
  // Hundreds of files have one short line.
  std::array<uint64_t, 2> folded = {0, 1};
  const auto add = [&folded](uint64_t number) {
    for (uint64_t& sum : folded) sum = mix64(mix64(sum + kMixStep) ^ number);
  };
  for (const fs::path& file : files) {
    struct stat info{};
    if (stat(file.c_str(), &info) != 0)
      return fail(ErrorCode::io, "cannot look at {}: {}", file.string(),
                  std::generic_category().message(errno));
    for (const char letter : file.filename().string()) add(static_cast<unsigned char>(letter));
    for (const auto number : {static_cast<int64_t>(info.st_dev), static_cast<int64_t>(info.st_ino),
                              static_cast<int64_t>(info.st_size), info.st_mtim.tv_sec,
                              info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec})
      add(static_cast<uint64_t>(number));
    all.bytes += info.st_size;
    all.newest = std::max(all.newest, std::chrono::seconds(info.st_ctim.tv_sec));
  }
  all.text = fmt::format("{:016x}{:016x}", folded[0], folded[1]);
  return all;
}

// The kept lines, each a state and its hash.
std::vector<std::pair<std::string, std::string>> read_lines(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> lines;
  struct stat info{};
  if (stat(path.c_str(), &info) != 0 || !check_owner(path, info)) return lines;
  const auto text = read_text_file(path, KeptModelHash::kMaxModels * kMaxLine);
  if (!text) return lines;
  std::istringstream words(*text);
  for (std::string state, hash; words >> state >> hash;) lines.emplace_back(state, hash);
  return lines;
}

}  // namespace

std::string KeptModelHash::find(const std::string& state) const {
  const auto lines = read_lines(folder_ / kFile);
  const auto found = std::ranges::find(lines, state, [](const auto& line) { return line.first; });
  return found == lines.end() ? std::string() : found->second;
}

bool KeptModelHash::keep(const std::string& state, const std::string& hash) const {
  // One that is there keeps its permissions, as /dev/shm.
  std::error_code problem;
  if (!fs::is_directory(folder_, problem) && make_private_folder(folder_) != 0) return false;
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
  // The folder may lie on a mount that has stopped answering.
  const auto calls =
      folder_.empty() ? nullptr : FileStore::calls_for(folder_, FileStore::kOpenLimit);
  if (calls) {
    const auto kept = calls->run<std::string>(
        [self = *this, state = before.text] { return Result<std::string>(self.find(state)); });
    if (kept && !kept->empty()) return *kept;
  }
  const TimePoint begin = RealClock().now();
  HOCKET_TRY(const std::string hash, hash_weights(model, HashedWeights::all));
  const double seconds = to_seconds(RealClock().now() - begin);
  HOCKET_TRY(const FileStates after, look_at(files));
  if (after.text != before.text)
    return fail(
        error(ErrorCode::io, "the files of {} changed while they were read", model.model_path)
            .with_fix("start again when they are complete"));
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

Result<std::string> hash_for_pages(const ServerSettings& settings) {
  if (!has_cache_tier(settings)) return std::string();
  const std::string& pages = settings.memory.kv_cache_dir;
  return KeptModelHash(pages.empty() ? settings.model.weight_cache : pages)
      .find_or_compute(settings.model);
}

}  // namespace hocket
