#include "server/access/key_ring.h"

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>

#include "server/access/split_words.h"

namespace hocket {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr std::string_view kDigestMark = "sha256:";
constexpr size_t kDigestBytesOfName = 6;

bool is_key_name(std::string_view word) {
  return !word.empty() && word.size() <= 64 && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// Returns a name that does not depend on the line's number.
std::string name_of_bare(std::span<const unsigned char> digest) {
  return fmt::format("key-{:02x}", fmt::join(digest.first(kDigestBytesOfName), ""));
}

// Reads one word after name and key.
Result<void> read_option(std::string_view word, Principal& principal, const std::string& where) {
  if (word == "admin") return principal.role = Role::admin, Result<void>{};
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  int64_t* const target = name == "requests_per_minute" ? &principal.limits.requests_per_minute
                          : name == "tokens_per_minute" ? &principal.limits.tokens_per_minute
                          : name == "concurrency"       ? &principal.limits.concurrency
                                                        : nullptr;
  // A word that is no option may be a key, so the message does not repeat it.
  if (target == nullptr)
    return fail(error(ErrorCode::bad_value, "{}: a word after the key is not a known option", where)
                    .with_fix("admin, requests_per_minute=N, tokens_per_minute=N, concurrency=N"));
  const std::string_view number = equals == word.npos ? "" : word.substr(equals + 1);
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), *target);
  if (code != std::errc{} || end != number.data() + number.size() || *target < 1)
    return fail(error(ErrorCode::bad_value, "{}: {} is not a number from 1 on", where, name)
                    .with_fix(fmt::format("{}=60, or leave it out for no limit", name)));
  return {};
}

}  // namespace

KeyRing::Digest KeyRing::digest_of(std::string_view key) {
  Digest digest{};
  EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

Result<void> KeyRing::add(Digest digest, Principal principal, const std::string& where) {
  if (entries_.size() >= kMaxKeys)
    return fail(ErrorCode::bad_value, "{}: there are more than {} keys", where, kMaxKeys);
  PrincipalPtr same;
  for (const Entry& entry : entries_) {
    if (entry.digest == digest)
      return fail(error(ErrorCode::bad_value, "{}: this key is already used for {}", where,
                        entry.principal->name)
                      .with_fix("each key is one client's"));
    if (entry.principal->name == principal.name) same = entry.principal;
  }
  if (same != nullptr && (same->role != principal.role || same->limits != principal.limits))
    return fail(error(ErrorCode::bad_value,
                      "{}: another key of {} has another role or other limits", where,
                      principal.name)
                    .with_fix("give all lines of one name the same role and limits"));
  if (same == nullptr) same = std::make_shared<const Principal>(std::move(principal));
  entries_.push_back({digest, std::move(same)});
  return {};
}

Result<void> KeyRing::add_line(std::string_view line, int number, std::string_view file) {
  const auto words = split_words(line.substr(0, line.find('#')), kBlank);
  if (words.empty()) return {};
  const std::string where = fmt::format("{} line {}", file, number);
  Principal principal{.role = Role::user, .alone = true};
  const bool is_bare = words.size() == 1;
  HOCKET_TRY(const Digest digest, read_key(is_bare ? words[0] : words[1], where));
  principal.name = is_bare ? name_of_bare(digest) : std::string(words[0]);
  if (!is_key_name(principal.name))
    return fail(error(ErrorCode::bad_value,
                      "{}: the first word is not a name of letters, digits, '-', '_', '.'", where)
                    .with_fix("NAME KEY [admin] [requests_per_minute=N] ..."));
  for (const char* taken : {"anonymous", "api-key", "admin-api-key", "rank"})
    if (principal.name == taken)
      return fail(ErrorCode::bad_value, "{}: the name {} is reserved", where, taken);
  for (size_t i = 2; i < words.size(); ++i)
    HOCKET_TRY_VOID(read_option(words[i], principal, where));
  return add(digest, std::move(principal), where);
}

// Reads a key, or its digest in hexadecimal.
Result<KeyRing::Digest> KeyRing::read_key(std::string_view word, const std::string& where) {
  if (!word.starts_with(kDigestMark)) return digest_of(word);
  const std::string_view hex = word.substr(kDigestMark.size());
  Digest digest{};
  bool good = hex.size() == 2 * digest.size();
  for (size_t i = 0; good && i < digest.size(); ++i) {
    const auto high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
    good = high && low;
    if (good) digest[i] = static_cast<unsigned char>(*high * 16 + *low);
  }
  if (!good)
    return fail(error(ErrorCode::bad_value, "{}: after sha256: come 64 hexadecimal digits", where)
                    .with_fix("printf %s KEY | sha256sum"));
  return digest;
}

Result<KeyRing> KeyRing::parse(std::string_view text, std::string_view name) {
  KeyRing ring;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    HOCKET_TRY_VOID(ring.add_line(text.substr(0, end), number, name));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return ring;
}

Result<KeyRing> KeyRing::load(const KeySources& sources) {
  KeyRing ring;
  if (!sources.file.empty()) {
    std::ifstream file(sources.file, std::ios::binary);
    std::string text(kMaxFile + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    if (!file.is_open() || file.bad())
      return fail(error(ErrorCode::io, "cannot read the keys in {}", sources.file)
                      .with_fix("--api-key-file FILE that this user may read")
                      .with_param("api-key-file"));
    if (text.size() > kMaxFile)
      return fail(ErrorCode::bad_value, "{} is larger than {} bytes", sources.file, kMaxFile);
    HOCKET_TRY(ring, parse(text, sources.file));
    // A key file that was emptied by mistake would let every client in.
    if (ring.empty())
      return fail(error(ErrorCode::bad_value, "{} has no key", sources.file)
                      .with_fix("one a line: NAME KEY"));
  }
  const bool is_only_key = sources.file.empty() && sources.admin_api_key.empty();
  if (!sources.api_key.empty())
    HOCKET_TRY_VOID(ring.add(
        digest_of(sources.api_key),
        Principal{.name = "api-key", .role = is_only_key ? Role::admin : Role::user}, "--api-key"));
  if (!sources.admin_api_key.empty())
    HOCKET_TRY_VOID(ring.add(digest_of(sources.admin_api_key), Principal{.name = "admin-api-key"},
                             "--admin-api-key"));
  return ring;
}

PrincipalPtr KeyRing::find(std::string_view key) const {
  const Digest digest = digest_of(key);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_)
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  return found == nullptr ? nullptr : found->principal;
}

bool is_readable_by_others(const std::string& file) {
  struct stat status{};
  return stat(file.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0;
}

}  // namespace hocket
