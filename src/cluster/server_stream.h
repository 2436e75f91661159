// The bytes of a connection to a server that is no rank (etcd, Redis), with or without TLS. No call
// blocks: if the socket takes or has no bytes, the call returns 0 or false, and the caller polls
// the socket with a time limit of its own. SIGPIPE is never raised. Thread: one at a time.
//
//   begin() until it is true -> send(), flush(), receive() ..
//
// Errors of all: io; unauthorized if the server's certificate is not one for this client. Their
// texts go on behind "NAME: ". After an error the connection is of no use.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/socket.h"
#include "cluster/tls.h"

namespace hocket {

class ServerStream {
 public:
  static constexpr size_t kMaxRead = size_t{256} << 10;  // bytes of one receive()

  // tls: null: without TLS. host: the name that the server's certificate must have.
  ServerStream(Fd socket, std::shared_ptr<const TlsContext> tls, const std::string& host);
  explicit ServerStream(Fd socket) : ServerStream(std::move(socket), nullptr, {}) {}

  // Continues the TLS handshake. Returns true when it is complete; if false, poll for wanted().
  Result<bool> begin();
  // Takes some of the bytes, which flush() sends to the end. Returns how many; 0: poll for POLLOUT.
  Result<size_t> send(std::string_view bytes);
  // Returns true when all that was taken is sent; if false, poll for POLLOUT.
  Result<bool> flush();
  // Appends bytes that have come to `in`. Returns how many; 0: poll for POLLIN.
  Result<size_t> receive(std::string& in);

  // Sends all. `wait(events)` polls, and returns Result<void>.
  template <class Wait>
  Result<void> send_all(std::string_view bytes, Wait&& wait) {
    while (!bytes.empty()) {
      HOCKET_TRY(const size_t taken, send(bytes));
      bytes.remove_prefix(taken);
      if (taken == 0) HOCKET_TRY_VOID(wait(POLLOUT));
    }
    while (true) {
      HOCKET_TRY(const bool is_sent, flush());
      if (is_sent) return {};
      HOCKET_TRY_VOID(wait(POLLOUT));
    }
  }

  // True if the server has ended the stream in order, so that no byte is missing.
  bool has_ended() const { return tls_ != nullptr ? tls_->has_ended() : has_ended_; }
  short wanted() const { return out_.empty() ? POLLIN : POLLOUT; }
  const Fd& socket() const { return socket_; }

 private:
  Result<size_t> read_raw(char* to, size_t max_bytes);
  Result<void> take_records();

  Fd socket_;
  std::unique_ptr<TlsStream> tls_;  // null: without TLS
  std::string raw_;                 // memory for records that come
  std::string early_;               // bytes that came with the end of the handshake
  std::string out_;                 // records to send
  bool has_ended_ = false;          // the server has closed its side
  std::optional<Error> end_;        // the end of TLS, behind the bytes that were received
};

}  // namespace hocket
