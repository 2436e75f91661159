#include "engine/session_files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "core/queue_limits.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

struct SessionFileHead {
  uint64_t magic = 0x0032'5353'4553'4b48;  // "HKSESS2" in the file
  PageKey form{};
  SessionKey owner, name;
  CacheNamespace name_space;
  uint64_t num_tokens = 0;
};
static_assert(sizeof(SessionFileHead) == 96);  // no byte without a meaning
constexpr std::string_view kDeleteOne = "delete a saved session";
constexpr QueueLimit<int64_t> kSavedLimit{"{} sessions are saved already", kDeleteOne};
constexpr QueueLimit<int64_t, int64_t> kSavedBytesLimit{
    "the lists of saved sessions take {} bytes already, of at most {}", kDeleteOne};
constexpr size_t kSumBytes = 32;
constexpr size_t kAround = sizeof(SessionFileHead) + kSumBytes;
constexpr size_t kMaxFileBytes = kAround + SessionFiles::kMaxTokens * sizeof(TokenId);

std::string hex_of(const SessionKey& key) {
  return fmt::format("{:016x}{:016x}", key.high, key.low);
}

// Clients do not learn where the server keeps its files.
std::unexpected<Error> write_failed(const fs::path& path, int problem) {
  const std::string why = std::generic_category().message(problem);
  log::warning("a session is not saved: cannot write {}: {}", path.string(), why);
  return fail(
      error(ErrorCode::io, "the session is not saved, and what was saved before stays: {}", why)
          .with_fix("make room on the server's disk, or let the server write to its "
                    "--kv-cache-dir; its log names the file"));
}

struct HeldFiles {
  int num = 0;
  int64_t bytes = 0;
};

// Files of a folder that are looked at: those that count, and abandoned ones.
constexpr int kMaxLookedAt = 2 * SessionFiles::kMax;

// Counts the files of a folder beside `path`, up to the limits of an owner, and deletes abandoned
// ones. A folder that someone has filled takes no longer than a full one.
HeldFiles count_files(const fs::path& folder, const fs::path& path) {
  HeldFiles held;
  std::error_code problem;
  fs::directory_iterator files(folder, problem);
  for (int i = 0; i < kMaxLookedAt && !problem && files != fs::directory_iterator();
       ++i, files.increment(problem)) {
    if (held.num >= SessionFiles::kMax || held.bytes >= SessionFiles::kMaxBytes) break;
    std::error_code gone;
    if (files->path().filename().string().starts_with(kUnfinishedFile)) {
      if (is_abandoned_file(files->path())) fs::remove(files->path(), gone);
    } else if (files->path() != path) {
      ++held.num;
      const uintmax_t bytes = files->file_size(gone);
      held.bytes += gone ? 0 : static_cast<int64_t>(bytes);
    }
  }
  return held;
}

struct FileText {
  std::string text;
  size_t file_bytes = 0;
};

// Reads the first `num_bytes` of a regular file of at most `max_bytes`, or all of a shorter one;
// nullopt if there is none.
std::optional<FileText> read_file(const fs::path& path, size_t max_bytes, size_t num_bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  struct stat info{};
  std::string text;
  bool whole = fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
               static_cast<uint64_t>(info.st_size) <= max_bytes;
  const size_t file_bytes = whole ? static_cast<size_t>(info.st_size) : 0;
  text.resize(std::min(file_bytes, num_bytes));
  for (size_t at = 0; whole && at < text.size();) {
    const ssize_t num_read = ::read(file, text.data() + at, text.size() - at);
    if (num_read < 0 && errno == EINTR) continue;
    whole = num_read > 0;
    at += whole ? static_cast<size_t>(num_read) : 0;
  }
  close(file);
  return whole ? std::optional(FileText{std::move(text), file_bytes}) : std::nullopt;
}

}  // namespace

std::string SessionFiles::text_of(const SessionFileName& name, const SessionTokens& session) const {
  const SessionFileHead head{.form = form_,
                             .owner = name.owner,
                             .name = name.name,
                             .name_space = session.name_space,
                             .num_tokens = session.tokens.size()};
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text.append(reinterpret_cast<const char*>(session.tokens.data()),
              session.tokens.size() * sizeof(TokenId));
  std::array<unsigned char, kSumBytes> sum{};
  HOCKET_CHECK(EVP_Digest(text.data(), text.size(), sum.data(), nullptr, EVP_sha256(), nullptr) ==
               1);
  return text.append(reinterpret_cast<const char*>(sum.data()), sum.size());
}

fs::path SessionFiles::folder_of(const SessionFileName& name) const {
  return folder_ / hex_of(name.owner);
}

fs::path SessionFiles::path_of(const SessionFileName& name) const {
  return folder_of(name) / hex_of(name.name);
}

Result<int64_t> SessionFiles::write(const SessionFileName& name,
                                    const SessionTokens& session) const {
  if (session.tokens.size() > kMaxTokens)
    return fail(error(ErrorCode::request_too_big,
                      "the session has {} tokens, and one that is saved has at most {}",
                      session.tokens.size(), kMaxTokens)
                    .with_fix("save it while it is shorter"));
  const fs::path folder = folder_of(name), path = path_of(name);
  for (const fs::path& made : {folder_, folder})
    if (mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) return write_failed(made, errno);
  const HeldFiles held = count_files(folder, path);
  HOCKET_TRY_VOID(check_limit(kSavedLimit, {.used = held.num, .max = kMax}, kMax));
  const std::string text = text_of(name, session);
  HOCKET_TRY_VOID(check_limit(kSavedBytesLimit,
                              {.used = held.bytes, .more = std::ssize(text), .max = kMaxBytes},
                              held.bytes, kMaxBytes));
  // The client may delete the conversation once it is told that this one is saved.
  const int problem =
      write_whole_file(path, {std::as_bytes(std::span(text))}, FileFlush::before_rename);
  if (problem != 0) return write_failed(path, problem);
  return std::ssize(text);
}

// The file is what write() would make of its tokens and its namespace, or it does not count.
std::optional<SessionTokens> SessionFiles::read(const SessionFileName& name) const {
  const auto file = read_file(path_of(name), kMaxFileBytes, kMaxFileBytes);
  if (!file || file->text.size() <= kAround) return std::nullopt;
  const std::string& text = file->text;
  SessionFileHead head;
  std::memcpy(&head, text.data(), sizeof head);
  SessionTokens session{.name_space = head.name_space,
                        .tokens = std::vector<TokenId>((text.size() - kAround) / sizeof(TokenId))};
  std::memcpy(session.tokens.data(), text.data() + sizeof head,
              session.tokens.size() * sizeof(TokenId));
  if (text_of(name, session) == text) {
    utimensat(AT_FDCWD, path_of(name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    return session;
  }
  log::warning("a saved session is left out, because {} is damaged or from elsewhere",
               path_of(name).string());
  return std::nullopt;
}

std::optional<int64_t> SessionFiles::find(const SessionFileName& name) const {
  const auto file = read_file(path_of(name), kMaxFileBytes, sizeof(SessionFileHead));
  if (!file || file->file_bytes <= kAround) return std::nullopt;
  SessionFileHead head;
  std::memcpy(&head, file->text.data(), sizeof head);
  const SessionFileHead here{.form = form_,
                             .owner = name.owner,
                             .name = name.name,
                             .name_space = head.name_space,
                             .num_tokens = (file->file_bytes - kAround) / sizeof(TokenId)};
  if (std::memcmp(&here, &head, sizeof head) != 0) return std::nullopt;
  return static_cast<int64_t>(head.num_tokens);
}

bool SessionFiles::remove(const SessionFileName& name) const {
  return unlink(path_of(name).c_str()) == 0;
}

}  // namespace hocket
