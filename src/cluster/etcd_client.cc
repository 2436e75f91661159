#include "cluster/etcd_client.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "cluster/etcd_json.h"

namespace hocket {
namespace {

constexpr std::string_view kSchemes[] = {"etcd://", "etcds://", "https://"};
constexpr uint16_t kEtcdPort = 2379;
constexpr size_t kMaxPlaceName = 64;

Error bad_place(std::string_view text, std::string_view why) {
  return error(ErrorCode::bad_value, "--cluster-store {}: {}", text, why)
      .with_fix("for example etcd://h0:2379,h1:2379,h2:2379")
      .with_param("cluster-store");
}

bool fits_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxPlaceName &&
         std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace

Result<EtcdAddress> read_etcd_address(std::string_view text) {
  const auto* const scheme =
      std::ranges::find_if(kSchemes, [&](std::string_view one) { return text.starts_with(one); });
  if (scheme == std::end(kSchemes))
    return fail(bad_place(text, "it begins with none of etcd://, etcds:// and https://"));
  std::string_view rest = text.substr(scheme->size());
  if (rest.find('@') != rest.npos)
    return fail(
        bad_place(fmt::format("{}...@...", *scheme), "hocket gives etcd no user and no password"));
  EtcdAddress address{.has_tls = scheme != std::begin(kSchemes)};
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    address.name = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (!fits_name(address.name))
      return fail(bad_place(
          text, fmt::format("its name has 1 to {} letters, digits, '-', '_', '.'", kMaxPlaceName)));
  }
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string server(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t colon = server.rfind(':'), bracket = server.rfind(']');
    const bool has_port = colon != server.npos && (bracket == server.npos || colon > bracket);
    if (!has_port && !server.empty()) server += fmt::format(":{}", kEtcdPort);
    auto parsed = parse_host_port(server);
    if (!parsed || parsed->port == 0)
      return fail(bad_place(text, fmt::format("'{}' is not host:port", server)));
    address.servers.push_back(*std::move(parsed));
  }
  if (address.servers.empty() || address.servers.size() > kMaxEtcdServers)
    return fail(bad_place(text, fmt::format("it names {} servers; 1 to {} are possible",
                                            address.servers.size(), kMaxEtcdServers)));
  return address;
}

EtcdClient::EtcdClient(Options options)
    : options_(std::move(options)),
      resolver_({.name = "etcd_resolve",
                 .target = "the name service of this host",
                 .limit = options_.attempt_limit,
                 .fix = "look at the name service of this host, or name the servers of "
                        "--cluster-store by address",
                 .param = "cluster-store"}) {}

void EtcdClient::next_server() {
  connection_.reset();
  watch_.reset();
  addresses_.clear();
  server_ = (server_ + 1) % options_.servers.size();
}

Result<EtcdConnection> EtcdClient::dial(TimePoint until) {
  const HostPort& server = options_.servers[server_];
  if (addresses_.empty()) {
    auto found = resolver_.run<std::vector<SocketAddress>>(
        [find = options_.resolver, server] { return find(server); });
    if (!found) {
      Error why = std::move(found).error();
      why.code = ErrorCode::io;  // another server may answer
      why.message = fmt::format("{}: {}", to_text(server), why.message);
      return fail(std::move(why));
    }
    addresses_ = *std::move(found);
  }
  return EtcdConnection::dial(server, addresses_, options_.tls, until);
}

Result<EtcdConnection::Answer> EtcdClient::ask(std::string_view path, const std::string& json,
                                               TimePoint until) {
  // The server may have closed a kept connection meanwhile, so an error of that says nothing.
  if (connection_ && connection_->may_go_on())
    if (auto answer = connection_->post(path, json, until)) return answer;
  connection_.reset();
  HOCKET_TRY(connection_, dial(until));
  return connection_->post(path, json, until);
}

Result<std::string> EtcdClient::call(std::string_view path, const std::string& json) {
  const TimePoint end = RealClock().now() + options_.call_limit;
  Error why = error(ErrorCode::io, "no server of etcd answers in time");
  for (size_t i = 0; i < options_.servers.size(); ++i) {
    const TimePoint now = RealClock().now();
    if (now >= end) break;
    auto answer = ask(path, json, std::min(end, now + options_.attempt_limit));
    if (answer && answer->status == 200) {
      local_host_ = connection_->local_host();
      return std::move(answer->body);
    }
    why = answer ? read_etcd_error(answer->status, answer->body) : answer.error();
    if (why.code != ErrorCode::io) return fail(std::move(why));
    next_server();
  }
  return fail(std::move(why));
}

Result<EtcdLease> EtcdClient::grant(int64_t ttl_s) {
  HOCKET_TRY(const std::string answer, call("/v3/lease/grant", etcd_grant_text(ttl_s)));
  return read_etcd_lease(answer);
}

Result<EtcdLease> EtcdClient::keep_alive(int64_t lease) {
  HOCKET_TRY(const std::string answer, call("/v3/lease/keepalive", etcd_lease_text(lease)));
  return read_etcd_keep_alive(answer);
}

Result<void> EtcdClient::revoke(int64_t lease) {
  HOCKET_TRY([[maybe_unused]] const std::string answer,
             call("/v3/lease/revoke", etcd_lease_text(lease)));
  return {};
}

Result<EtcdRange> EtcdClient::range(std::string_view prefix, int max_entries) {
  HOCKET_TRY(const std::string answer, call("/v3/kv/range", etcd_range_text(prefix, max_entries)));
  return read_etcd_range(answer);
}

Result<bool> EtcdClient::swap(const EtcdSwap& swap) {
  HOCKET_TRY(const std::string answer, call("/v3/kv/txn", etcd_swap_text(swap)));
  return read_etcd_swapped(answer);
}

Result<void> EtcdClient::watch(std::string_view key, int64_t from_revision) {
  watch_.reset();
  const TimePoint until = RealClock().now() + options_.attempt_limit;
  HOCKET_TRY(EtcdConnection connection, dial(until));
  HOCKET_TRY_VOID(connection.begin("/v3/watch", etcd_watch_text(key, from_revision), until));
  watch_ = std::move(connection);
  return {};
}

Result<std::vector<EtcdChange>> EtcdClient::changes() {
  if (!watch_) return fail(ErrorCode::io, "another server of etcd answers now");
  std::vector<EtcdChange> all;
  const auto read = [&]() -> Result<void> {
    HOCKET_TRY(const std::vector<std::string> lines, watch_->lines());
    for (const std::string& line : lines) {
      HOCKET_TRY(std::vector<EtcdChange> some, read_etcd_changes(line));
      for (EtcdChange& one : some) all.push_back(std::move(one));
    }
    return {};
  };
  if (auto done = read(); !done) {
    watch_.reset();
    return fail(std::move(done).error());
  }
  return all;
}

}  // namespace hocket
