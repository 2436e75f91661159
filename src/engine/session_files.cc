#include "engine/session_files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

struct SessionFileHead {
  uint64_t magic = 0x0031'5353'4553'4b48;  // "HKSESS1" in the file
  uint64_t high = 0, low = 0;              // the namespace
  uint64_t num_tokens = 0;
};
using Digest = std::array<unsigned char, 32>;

Digest digest_of(std::string_view text) {
  Digest sum{};
  HOCKET_CHECK(EVP_Digest(text.data(), text.size(), sum.data(), nullptr, EVP_sha256(), nullptr) ==
               1);
  return sum;
}

std::string text_of(const SessionTokens& session) {
  const SessionFileHead head{.high = session.name_space.high,
                             .low = session.name_space.low,
                             .num_tokens = session.tokens.size()};
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text.append(reinterpret_cast<const char*>(session.tokens.data()),
              session.tokens.size() * sizeof(TokenId));
  const Digest sum = digest_of(text);
  return text.append(reinterpret_cast<const char*>(sum.data()), sum.size());
}

// Nobody else may read what clients wrote. Returns 0, or the error's number.
int write_private_file(const fs::path& path, std::string_view text) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return errno;
  int problem = 0;
  while (!text.empty() && problem == 0) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0)
      text.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR)
      problem = errno;
  }
  return close(file) == 0 || problem != 0 ? problem : errno;
}

}  // namespace

fs::path SessionFiles::path_of(SessionKey name) const {
  return folder_ / fmt::format("{:016x}{:016x}", name.high, name.low);
}

Result<int64_t> SessionFiles::write(SessionKey name, const SessionTokens& session) const {
  const auto problem_at = [](const fs::path& path, int problem) {
    return fail(error(ErrorCode::io, "cannot write {}: {}", path.string(),
                      std::generic_category().message(problem))
                    .with_fix("let this user write there, and look for room on the disk"));
  };
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) return problem_at(folder_, errno);
  const fs::path path = path_of(name), fresh = folder_ / "unfinished";
  std::error_code gone;
  const auto files = fs::directory_iterator(folder_, gone);
  if (std::distance(begin(files), end(files)) >= kMost && !fs::exists(path, gone))
    return fail(error(ErrorCode::queue_full, "{} sessions are saved already", kMost)
                    .with_fix("delete one: POST /sessions/NAME/delete"));
  const std::string text = text_of(session);
  int problem = write_private_file(fresh, text);
  if (problem == 0 && rename(fresh.c_str(), path.c_str()) != 0) problem = errno;
  if (problem == 0) return std::ssize(text);
  unlink(fresh.c_str());
  return problem_at(path, problem);
}

std::optional<SessionTokens> SessionFiles::read(SessionKey name) const {
  std::ifstream file(path_of(name), std::ios::binary);
  SessionFileHead head;
  const SessionFileHead wanted;
  if (!file.read(reinterpret_cast<char*>(&head), sizeof head) || head.magic != wanted.magic ||
      head.num_tokens > kMostTokens)
    return std::nullopt;
  SessionTokens session{.name_space = {head.high, head.low},
                        .tokens = std::vector<TokenId>(head.num_tokens)};
  std::string sum(sizeof(Digest), '\0');
  file.read(reinterpret_cast<char*>(session.tokens.data()),
            static_cast<std::streamsize>(head.num_tokens * sizeof(TokenId)));
  file.read(sum.data(), static_cast<std::streamsize>(sum.size()));
  if (!file || !text_of(session).ends_with(sum)) return std::nullopt;
  return session;
}

bool SessionFiles::remove(SessionKey name) const {
  return unlink(path_of(name).c_str()) == 0;
}

}  // namespace hocket
