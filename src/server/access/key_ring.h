// The keys a server takes, and whose they are. Only their SHA-256 is kept; a given key is compared
// with every one of them, in a time that tells nothing about any.
//
// A file has one key a line, `#` begins a comment:
//
//   NAME KEY [admin] [requests_per_minute=N] [tokens_per_minute=N] [concurrency=N]
//   KEY
//
// KEY is the key itself, or sha256: and 64 hexadecimal digits. Lines of one NAME are keys of the
// same client (old and new); what they say besides must be the same. A line with a key alone is
// named key- and the first 12 digits of the key's SHA-256, so that its name moves with the key and
// not with the line.
//
// Admins are the holder of the admin key and the clients that the file marks as such. The shared
// key is an admin's, too, if it is the only one: else no client could flush the cache.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/access/principal.h"

namespace hocket {

// Where keys come from; all empty: everybody is let in.
struct KeySources {
  std::string api_key, admin_api_key;  // shared: "api-key" and "admin-api-key"
  std::string file;
};

// Constant.   Thread: any.
class KeyRing {
 public:
  static constexpr size_t kKeysMax = 1000;
  static constexpr size_t kFileMax = 1 << 20;  // bytes

  KeyRing() = default;  // no keys
  // Errors: io (the file), bad_value with file and line; no message has a key in it.
  static Result<KeyRing> load(const KeySources& sources);
  // `name`: of the file, for errors.
  static Result<KeyRing> parse(std::string_view text, std::string_view name);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // Null: nobody's.
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

// Whether others than its owner may read the file of keys.
bool is_readable_by_others(const std::string& file);

}  // namespace hocket
