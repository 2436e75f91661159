#include "cluster/etcd_json.h"

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>

#include "core/bounded_json.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

constexpr int kNotFound = 5, kUnauthenticated = 16, kPermissionDenied = 7;  // codes of gRPC
constexpr size_t kMaxReason = 300;                                          // bytes of a reason

std::unexpected<Error> strange(std::string_view what) {
  return fail(error(ErrorCode::io, "an answer of etcd is not understood: {}", what)
                  .with_fix("--cluster-store names the client ports of etcd 3.4 or later"));
}

Result<Json> parse(std::string_view text) {
  Json tree = parse_bounded_json<Json>(text);
  if (!tree.is_object()) return strange("it is no JSON object");
  return tree;
}

// Returns a 64-bit number, which etcd writes as text; 0 if the field is not there.
Result<int64_t> number(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return strange(fmt::format("{} is no number", name));
  const auto& text = found->get_ref<const std::string&>();
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size())
    return strange(fmt::format("{} is no number", name));
  return value;
}

Result<std::string> bytes(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::string();
  if (found->is_string())
    if (auto text = from_base64(found->get_ref<const std::string&>())) return *std::move(text);
  return strange(fmt::format("{} is not base64", name));
}

// Returns the object or list `name`, an empty one if it is not there.
Result<Json> part(const Json& object, const char* name, Json::value_t type) {
  const auto found = object.find(name);
  if (found == object.end()) return Json(type);
  if (found->type() != type) return strange(fmt::format("{} is of another type", name));
  return *found;
}

Result<int64_t> revision(const Json& answer) {
  HOCKET_TRY(const Json header, part(answer, "header", Json::value_t::object));
  return number(header, "revision");
}

Result<EtcdEntry> entry(const Json& kv) {
  if (!kv.is_object()) return strange("an entry is no object");
  EtcdEntry made;
  HOCKET_TRY(made.key, bytes(kv, "key"));
  HOCKET_TRY(made.value, bytes(kv, "value"));
  HOCKET_TRY(made.create_revision, number(kv, "create_revision"));
  HOCKET_TRY(made.mod_revision, number(kv, "mod_revision"));
  if (made.key.empty()) return strange("an entry has no key");
  return made;
}

Result<std::vector<EtcdEntry>> entries(const Json& answer) {
  HOCKET_TRY(const Json kvs, part(answer, "kvs", Json::value_t::array));
  std::vector<EtcdEntry> all;
  for (const Json& kv : kvs) {
    HOCKET_TRY(EtcdEntry one, entry(kv));
    all.push_back(std::move(one));
  }
  return all;
}

// Returns a text for people, which goes into logs: without line ends.
std::string reason(const Json& tree) {
  for (const char* name : {"message", "error"})
    if (const auto found = tree.find(name); found != tree.end() && found->is_string()) {
      std::string text = found->get_ref<const std::string&>().substr(0, kMaxReason);
      std::ranges::replace_if(text, [](unsigned char c) { return c < 32 || c == 127; }, ' ');
      return text;
    }
  return "it gives no reason";
}

// Returns the first key behind all keys that begin with `prefix`.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 255) prefix.pop_back();
  if (prefix.empty()) return std::string(1, '\0');  // etcd: all keys from the first on
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty()) return std::string();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  if (length < 0) return std::nullopt;
  bytes.resize(bytes.size() - (text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0));
  // OpenSSL takes white space and padding elsewhere, too.
  if (to_base64(bytes) != text) return std::nullopt;
  return bytes;
}

std::string etcd_grant_text(int64_t ttl_s) {
  return Json{{"TTL", std::to_string(ttl_s)}}.dump();
}

std::string etcd_lease_text(int64_t lease) {
  return Json{{"ID", std::to_string(lease)}}.dump();
}

std::string etcd_range_text(std::string_view prefix, int max_entries) {
  return Json{{"key", to_base64(prefix)},
              {"range_end", to_base64(end_of(std::string(prefix)))},
              {"limit", std::to_string(max_entries)}}
      .dump();
}

std::string etcd_swap_text(const EtcdSwap& swap) {
  Json compare = Json::array(), changes = Json::array();
  if (!swap.key.empty())
    compare.push_back({{"key", to_base64(swap.key)},
                       {"target", "CREATE"},
                       {"result", "EQUAL"},
                       {"create_revision", std::to_string(swap.create_revision)}});
  for (const EtcdPut& put : swap.puts)
    changes.push_back({{"request_put",
                        {{"key", to_base64(put.key)},
                         {"value", to_base64(put.value)},
                         {"lease", std::to_string(put.lease)}}}});
  for (const std::string& key : swap.erased)
    changes.push_back({{"request_delete_range", {{"key", to_base64(key)}}}});
  return Json{{"compare", compare}, {"success", changes}}.dump();
}

std::string etcd_watch_text(std::string_view key, int64_t from_revision) {
  return Json{{"create_request",
               {{"key", to_base64(key)}, {"start_revision", std::to_string(from_revision)}}}}
      .dump();
}

Result<EtcdLease> read_etcd_lease(std::string_view text) {
  HOCKET_TRY(const Json answer, parse(text));
  EtcdLease lease;
  HOCKET_TRY(lease.id, number(answer, "ID"));
  HOCKET_TRY(lease.ttl_s, number(answer, "TTL"));
  if (lease.id == 0 || lease.ttl_s <= 0) return strange("a lease has no id or no time");
  return lease;
}

Result<EtcdLease> read_etcd_keep_alive(std::string_view text) {
  HOCKET_TRY(const Json answer, parse(text));
  if (answer.contains("error")) return fail(ErrorCode::io, "etcd: {}", reason(answer["error"]));
  if (!answer.contains("result")) return strange("it has no result");
  HOCKET_TRY(const Json result, part(answer, "result", Json::value_t::object));
  EtcdLease lease;
  HOCKET_TRY(lease.id, number(result, "ID"));
  HOCKET_TRY(lease.ttl_s, number(result, "TTL"));
  if (lease.id == 0 || lease.ttl_s < 0) return strange("a lease has no id, or a negative time");
  return lease;
}

Result<EtcdRange> read_etcd_range(std::string_view text) {
  HOCKET_TRY(const Json answer, parse(text));
  EtcdRange range;
  HOCKET_TRY(range.revision, revision(answer));
  if (range.revision <= 0) return strange("it has no revision");
  HOCKET_TRY(range.entries, entries(answer));
  return range;
}

Result<bool> read_etcd_swapped(std::string_view text) {
  HOCKET_TRY(const Json answer, parse(text));
  HOCKET_TRY(const int64_t now, revision(answer));
  if (now <= 0) return strange("it has no revision");
  const auto done = answer.find("succeeded");
  if (done == answer.end()) return false;
  if (!done->is_boolean()) return strange("succeeded is no word");
  return done->get<bool>();
}

Result<std::vector<EtcdChange>> read_etcd_changes(std::string_view line) {
  HOCKET_TRY(const Json answer, parse(line));
  if (const auto problem = answer.find("error"); problem != answer.end())
    return fail(ErrorCode::io, "etcd ended the watch: {}",
                reason(problem->is_object() ? *problem : answer));
  HOCKET_TRY(const Json result, part(answer, "result", Json::value_t::object));
  if (const auto gone = result.find("canceled"); gone != result.end() && *gone == true) {
    HOCKET_TRY(const int64_t oldest, number(result, "compact_revision"));
    if (oldest > 0)
      return fail(ErrorCode::io, "etcd has forgotten what was before revision {}", oldest);
    return fail(ErrorCode::io, "etcd ended the watch");
  }
  HOCKET_TRY(const Json events, part(result, "events", Json::value_t::array));
  std::vector<EtcdChange> all;
  for (const Json& event : events) {
    if (!event.is_object()) return strange("an event is no object");
    const auto kv = event.find("kv");
    if (kv == event.end()) return strange("an event has no entry");
    EtcdChange change;
    HOCKET_TRY(change.entry, entry(*kv));
    if (const auto type = event.find("type"); type != event.end())
      change.erased = *type == "DELETE";
    all.push_back(std::move(change));
  }
  return all;
}

Error read_etcd_error(int status, std::string_view text) {
  const Json tree = parse_bounded_json<Json>(text);
  int64_t code = 0;
  std::string why = fmt::format("HTTP {}", status);
  if (tree.is_object()) {
    code = number(tree, "code").value_or(0);
    why = reason(tree);
  }
  if (code == kNotFound) return error(ErrorCode::not_found, "etcd: {}", why);
  if (why.find("user name is empty") != std::string::npos || code == kUnauthenticated ||
      code == kPermissionDenied || status == 401 || status == 403)
    return error(ErrorCode::unauthorized, "etcd requires authentication: {}", why)
        .with_fix("an etcd for the ranks, without users; the network keeps strangers out");
  return error(ErrorCode::io, "etcd: {}", why);
}

}  // namespace hocket
