// Sends requests to the servers of an etcd by HTTP: to one after the other until one answers, then
// to that one until it fails. A watch runs at the server that answered last. It ends when another
// server answers, so it never stays at a server that is cut off from the others. Each server has
// attempt_limit to answer. The look-up of its name has the same limit, and is repeated after the
// server has failed. A look-up that takes longer is abandoned. Thread: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/timed_calls.h"
#include "cluster/etcd.h"
#include "cluster/etcd_http.h"

namespace hocket {

// The address of a service in an etcd.
struct EtcdAddress {
  std::vector<HostPort> servers;  // client ports
  std::string name = "hocket";    // all ranks of a service have the same
  bool has_tls = false;

  bool operator==(const EtcdAddress&) const = default;
};

inline constexpr size_t kMaxEtcdServers = 16;

// Reads "etcd://h0:2379,h1:2379/name", or etcds:// or https:// for servers with TLS; the port is
// 2379 if not given, and the name may be left out. Errors: bad_value, also for what is not there: a
// user, a password.
Result<EtcdAddress> read_etcd_address(std::string_view text);

class EtcdClient final : public Etcd {
 public:
  struct Options {
    std::vector<HostPort> servers;
    std::shared_ptr<const TlsContext> tls = nullptr;  // null: without TLS
    Duration attempt_limit = std::chrono::seconds(1);
    Duration call_limit = std::chrono::seconds(3);  // for a call with all its attempts
    // Finds addresses of names; owns all that it uses. It may block.
    std::function<Result<std::vector<SocketAddress>>(const HostPort&)> resolver = resolve;
  };
  explicit EtcdClient(Options options);

  Result<EtcdLease> grant(int64_t ttl_s) override;
  Result<EtcdLease> keep_alive(int64_t lease) override;
  Result<void> revoke(int64_t lease) override;
  Result<EtcdRange> range(std::string_view prefix, int max_entries) override;
  Result<bool> swap(const EtcdSwap& swap) override;
  Result<void> watch(std::string_view key, int64_t from_revision) override;
  Result<std::vector<EtcdChange>> changes() override;
  int watch_fd() const override { return watch_ ? watch_->fd() : -1; }
  std::string local_host() const override { return local_host_; }

 private:
  Result<std::string> call(std::string_view path, const std::string& json);
  Result<EtcdConnection::Answer> ask(std::string_view path, const std::string& json,
                                     TimePoint until);
  Result<EtcdConnection> dial(TimePoint until);
  void next_server();

  const Options options_;
  TimedCalls resolver_;
  size_t server_ = 0;                     // the one that is asked
  std::vector<SocketAddress> addresses_;  // that server's; empty: not known
  std::optional<EtcdConnection> connection_;
  std::optional<EtcdConnection> watch_;
  std::string local_host_;
};

}  // namespace hocket
