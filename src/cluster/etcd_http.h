// One HTTP/1.1 connection to a server of etcd: requests whose answers are small, or one request
// whose answer continues (a watch). Every call has a deadline.
// Limits: heads of 8 KiB, answers of 1 MiB; a watch's unfinished line of 1 MiB.
// Thread: one. Only etcd_http.cc includes Beast.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/server_stream.h"

namespace hocket {

inline constexpr size_t kMaxEtcdAnswerBytes = size_t{1} << 20;

class EtcdConnection {
 public:
  // Connects to the first of `addresses` that takes a connection; tls: null: without TLS.
  // Errors: io.
  static Result<EtcdConnection> dial(const HostPort& server,
                                     const std::vector<SocketAddress>& addresses,
                                     const std::shared_ptr<const TlsContext>& tls, TimePoint until);
  EtcdConnection(EtcdConnection&&) noexcept;
  EtcdConnection& operator=(EtcdConnection&&) noexcept;
  ~EtcdConnection();

  struct Answer {
    int status = 0;
    std::string body;
  };
  // Sends a request and waits for its whole answer. Errors: io; the connection is of no use then.
  Result<Answer> post(std::string_view path, std::string_view json, TimePoint until);
  // True if another request may follow.
  bool may_go_on() const { return may_go_on_; }

  // Sends a request whose answer does not end, and waits for its head. Errors: io; unauthorized and
  // not_found as the answer says.
  Result<void> begin(std::string_view path, std::string_view json, TimePoint until);
  // Returns the whole lines that have arrived since then. Never waits. Errors: io.
  Result<std::vector<std::string>> lines();

  int fd() const { return stream_.socket().get(); }
  std::string local_host() const { return local_address(stream_.socket()).host(); }

 private:
  struct Parser;
  EtcdConnection(ServerStream stream, const HostPort& server);
  Result<void> shake_hands(TimePoint until);
  std::unexpected<Error> broken(const Error& why) const;
  Result<void> send(std::string_view path, std::string_view json, TimePoint until);
  // Reads once into the parser; false if nothing arrived before `until`.
  Result<bool> read(TimePoint until);
  Result<void> parse();

  ServerStream stream_;
  std::string server_;
  std::unique_ptr<Parser> parser_;
  std::string in_;    // bytes that the parser has not taken
  std::string line_;  // the unfinished line of a watch
  bool may_go_on_ = true;
};

}  // namespace hocket
