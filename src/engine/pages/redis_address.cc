#include "engine/pages/redis_address.h"

#include <charconv>
#include <optional>
#include <utility>

namespace hocket {
namespace {

constexpr uint16_t kRedisPort = 6379;
constexpr int kMaxDatabases = 1 << 16;
constexpr size_t kMaxStoreAddressBytes = 4096;

std::unexpected<Error> bad_address(std::string_view text, std::string_view why) {
  return fail(error(ErrorCode::bad_value, "--kv-cache-store {}: {}", without_password(text), why)
                  .with_param("kv-cache-store")
                  .with_fix("--kv-cache-store redis://HOST:6379, with [USER]:PASSWORD@ before the "
                            "host where it asks for one"));
}

// Returns the text with its %41 as A; nullopt if a percent sign stands for nothing.
std::optional<std::string> decode_percents(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    unsigned value = 0;
    const char* const begin = text.data() + i + 1;
    if (text.size() - i < 3 || std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2)
      return std::nullopt;
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

// Takes what is before the last @ away.
std::string_view take_login(std::string_view& rest) {
  const size_t at = rest.rfind('@');
  if (at == std::string_view::npos) return {};
  const std::string_view login = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  return login;
}

}  // namespace

std::string without_password(std::string_view text) {
  const size_t scheme = text.find("://");
  const size_t begin = scheme == std::string_view::npos ? 0 : scheme + 3;
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos || at < begin) return std::string(text);
  const size_t colon = text.find(':', begin);
  if (colon == std::string_view::npos || colon > at) return std::string(text);
  return fmt::format("{}***{}", text.substr(0, colon + 1), text.substr(at));
}

std::string RedisAddress::text() const {
  const std::string path = database == 0 ? "" : fmt::format("/{}", database);
  return fmt::format("{}://{}{}{}", has_tls ? "rediss" : "redis", user.empty() ? "" : user + "@",
                     to_text(host), path);
}

Result<RedisAddress> parse_redis_address(std::string_view text) {
  std::string_view rest = text;
  if (text.size() > kMaxStoreAddressBytes)
    return bad_address(text.substr(0, 64), "the address is too long");
  const size_t end_of_scheme = rest.find("://");
  const std::string_view scheme =
      end_of_scheme == std::string_view::npos ? "" : rest.substr(0, end_of_scheme);
  const bool has_tls = scheme == "rediss" || scheme == "valkeys";
  if (!has_tls && scheme != "redis" && scheme != "valkey")
    return bad_address(text, "it begins with none of redis://, valkey://, rediss://, valkeys://");
  rest.remove_prefix(end_of_scheme + 3);
  RedisAddress address{.has_tls = has_tls};
  const std::string_view login = take_login(rest);
  const size_t colon = login.find(':');
  auto user = decode_percents(login.substr(0, colon));
  auto password = decode_percents(colon == std::string_view::npos ? "" : login.substr(colon + 1));
  if (!user || !password) return bad_address(text, "a % is not followed by two hex digits");
  if (!user->empty() && password->empty()) return bad_address(text, "a user needs a password");
  address.user = *std::move(user);
  address.password = *std::move(password);
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view number = rest.substr(slash + 1);
    const char* const end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, address.database);
    if (!number.empty() && (parsed.ptr != end || parsed.ec != std::errc() || address.database < 0 ||
                            address.database >= kMaxDatabases))
      return bad_address(text, "the text behind the / is no number of a database");
    rest = rest.substr(0, slash);
  }
  const bool has_port = rest.rfind(':') != std::string_view::npos &&
                        (!rest.starts_with('[') || rest.find("]:") != std::string_view::npos);
  auto host =
      parse_host_port(has_port ? std::string(rest) : fmt::format("{}:{}", rest, kRedisPort));
  if (!host || host->port == 0 || host->host.empty())
    return bad_address(text, "it names no host and port");
  address.host = *std::move(host);
  return address;
}

}  // namespace hocket
