// One connection to a server of etcd: requests whose answers are small, or one request whose answer
// continues (a watch). Every call has a deadline.
// Limits: answers of 1 MiB; a watch's unfinished line of 1 MiB. Thread: one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/blocking_http_connection.h"

namespace hocket {

inline constexpr size_t kMaxEtcdAnswerBytes = size_t{1} << 20;

class EtcdConnection {
 public:
  // Connects to the first of `addresses` that takes a connection; tls: null: without TLS.
  // Errors: io.
  static Result<EtcdConnection> dial(const HostPort& server,
                                     const std::vector<SocketAddress>& addresses,
                                     const std::shared_ptr<const TlsContext>& tls, TimePoint until);

  struct Answer {
    int status = 0;
    std::string body;
  };
  // Sends a request and waits for its whole answer. Errors: io; the connection is of no use then.
  Result<Answer> post(std::string_view path, std::string_view json, TimePoint until);
  // True if another request may follow.
  bool may_go_on() const { return http_.may_go_on(); }

  // Sends a request whose answer does not end, and waits for its head. Errors: io; unauthorized and
  // not_found as the answer says.
  Result<void> begin(std::string_view path, std::string_view json, TimePoint until);
  // Returns the whole lines that have arrived since then. Never waits. Errors: io.
  Result<std::vector<std::string>> lines();

  int fd() const { return http_.socket().get(); }
  std::string local_host() const { return local_address(http_.socket()).host(); }

 private:
  EtcdConnection(BlockingHttpConnection http, std::string server)
      : http_(std::move(http)), server_(std::move(server)) {}
  Result<void> ask(std::string_view path, std::string_view json, TimePoint until);

  BlockingHttpConnection http_;
  std::string server_;
  std::string line_;  // the unfinished line of a watch
};

}  // namespace hocket
