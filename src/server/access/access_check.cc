#include "server/access/access_check.h"

#include <fmt/ranges.h>
#include <openssl/rand.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "server/access/api_key.h"

namespace hocket {
namespace {

constexpr const char* kWhoHeader = "X-Hocket-Who";
constexpr const char* kRoleHeader = "X-Hocket-Role";
constexpr const char* kAloneHeader = "X-Hocket-Alone";

const PrincipalPtr& anybody() {
  static const auto principal = std::make_shared<const Principal>();
  return principal;
}

// Returns a principal without an admin's rights.
const PrincipalPtr& stranger() {
  static const auto principal = std::make_shared<const Principal>(Principal{.role = Role::user});
  return principal;
}

Error no_key(std::string_view given) {
  const char* what =
      given.empty() ? "this server needs an API key" : "this is not a key of this server";
  return error(ErrorCode::unauthorized, "{}", what)
      .with_fix("send Authorization: Bearer KEY, or x-api-key: KEY");
}

}  // namespace

AccessCheck::AccessCheck(Options options) : options_(std::move(options)), limits_(options_.clock) {}

Result<std::unique_ptr<AccessCheck>> AccessCheck::create(Options options) {
  std::unique_ptr<AccessCheck> check(new AccessCheck(std::move(options)));
  const Options& given = check->options_;
  HOCKET_TRY(check->origins_, Origins::parse(given.cors_origins));
  HOCKET_TRY(check->names_, HostNames::parse(given.allowed_hosts, given.host));
  check->local_ = is_loopback_host(given.host);
  HOCKET_TRY_VOID(check->reload());
  return check;
}

Result<void> AccessCheck::reload() {
  HOCKET_TRY(KeyRing ring, KeyRing::load(options_.keys));
  auto fresh = std::make_shared<const KeyRing>(std::move(ring));
  MutexLock lock(mutex_);
  keys_ = std::move(fresh);
  return {};
}

std::shared_ptr<const KeyRing> AccessCheck::keys() const {
  MutexLock lock(mutex_);
  return keys_;
}

size_t AccessCheck::num_keys() const {
  return keys()->size();
}

bool AccessCheck::checks_names() const {
  return !options_.tls && (local_ || keys()->empty());
}

Result<PrincipalPtr> AccessCheck::identify(const HttpRequest& head, Access access) const {
  const auto ring = keys();
  if (ring->empty()) return anybody();
  if (access == Access::open) return stranger();
  const std::string_view given = given_key(head);
  PrincipalPtr who = given.empty() ? nullptr : ring->find(given);
  if (who == nullptr) return fail(no_key(given));
  if (access == Access::admin && who->role != Role::admin)
    return fail(error(ErrorCode::forbidden, "{} needs an admin key, and the key of {} is a user's",
                      head.path.substr(0, 128), who->name)
                    .with_fix("send a key of an admin: --admin-api-key, or `admin` in the file of "
                              "--api-key-file"));
  return who;
}

HttpAdmission AccessCheck::admit(const HttpRequest& head) {
  HttpAdmission out;
  origins_.add_headers(head, out.headers);
  if (head.method == "OPTIONS") {
    admit_sender(out, {.principal = stranger()});
    return out;
  }
  const PathAccess needs = options_.needs ? options_.needs(head) : PathAccess{};
  if (needs.access != Access::open && checks_names() && !names_.allows(head)) {
    const std::string_view name = name_in_host(head.header("host")).substr(0, 128);
    out.refusal = error(ErrorCode::forbidden,
                        "the header Host names '{}', which is not a name of this server", name)
                      .with_fix(fmt::format("start the server with --allowed-hosts {}", name));
    return out;
  }
  if (needs.access != Access::open && !origins_.allows(head, needs.access)) {
    const std::string_view origin = head.header("origin").substr(0, 128);
    out.refusal = error(ErrorCode::forbidden, "pages of {} may not send requests to this server",
                        origin.empty() ? "another site" : origin)
                      .with_fix("start the server with --cors-origins and that origin");
    return out;
  }
  auto who = identify(head, needs.access);
  if (!who) {
    out.refusal = std::move(who).error();
    return out;
  }
  RateLimits::Admission limited;
  if (needs.counted) limited = limits_.begin(**who);
  admit_sender(out, {.principal = *std::move(who), .meter = std::move(limited.meter)});
  out.refusal = std::move(limited.refusal);
  for (auto& header : limited.headers) out.headers.push_back(std::move(header));
  return out;
}

std::string fresh_rank_key() {
  std::array<unsigned char, 32> bytes{};
  HOCKET_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

HttpAdmission admit_rank(const HttpRequest& head, std::string_view key) {
  HttpAdmission out;
  const std::string_view given = given_key(head);
  if (key.empty() || !same_key(given, key)) {
    out.refusal = no_key(given);
    return out;
  }
  const std::string_view name = head.header(kWhoHeader);
  const Role role = head.header(kRoleHeader) == "admin" ? Role::admin : Role::user;
  auto principal =
      std::make_shared<const Principal>(Principal{.name = name.empty() ? "rank" : std::string(name),
                                                  .role = role,
                                                  .alone = head.header(kAloneHeader) == "true"});
  admit_sender(out, {.principal = std::move(principal), .is_rank = true});
  return out;
}

HttpHeaders principal_headers(const Principal& principal) {
  return {{kWhoHeader, principal.name},
          {kRoleHeader, principal.role == Role::admin ? "admin" : "user"},
          {kAloneHeader, principal.alone ? "true" : "false"}};
}

}  // namespace hocket
