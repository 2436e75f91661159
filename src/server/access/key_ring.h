// The keys that a server accepts, each with its principal. Only the SHA-256 of a key is stored. A
// key in a request is compared with all of them, so the time tells nothing about any of them.
//
// A file has one key a line, `#` begins a comment:
//
//   NAME KEY [admin] [requests_per_minute=N] [tokens_per_minute=N] [concurrency=N]
//   KEY
//
// KEY is the key itself, or sha256: and 64 hexadecimal digits. Lines with the same NAME are keys of
// the same client (an old and a new one), and their other words must be the same. A client whose
// line has a key alone is named key- and the first 12 digits of the key's SHA-256, so that the name
// follows the key, not the line.
//
// The holder of the admin key and the clients that the file marks as `admin` are admins. The shared
// key makes its holder an admin too if it is the only key: otherwise no client could flush the
// cache.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/access/principal.h"

namespace hocket {

// The places that keys come from. If all are empty, every client is let in without a key.
struct KeySources {
  std::string api_key, admin_api_key;  // shared: of "api-key" and "admin-api-key"
  std::string file;
};

// The object never changes after load().   Thread: any.
class KeyRing {
 public:
  static constexpr size_t kMaxKeys = 1000;
  static constexpr size_t kMaxFile = 1 << 20;  // bytes

  KeyRing() = default;  // no keys
  // Errors: io (the file), bad_value with file and line; no message contains a key.
  static Result<KeyRing> load(const KeySources& sources);
  // `name` is the name of the file, for errors.
  static Result<KeyRing> parse(std::string_view text, std::string_view name);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Returns the key's principal; null if no client has this key.
  PrincipalPtr find(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Digest digest{};
    PrincipalPtr principal;
  };
  Result<void> add_line(std::string_view line, int number, std::string_view file);
  Result<void> add(Digest digest, Principal principal, const std::string& where);
  static Digest digest_of(std::string_view key);
  static Result<Digest> read_key(std::string_view word, const std::string& where);

  std::vector<Entry> entries_;
};

// Returns true if users other than the file's owner may read the key file.
bool is_readable_by_others(const std::string& file);

}  // namespace hocket
