// One HTTP/1.1 connection to a server, with or without TLS, for etcd and for hocket's own commands:
// one request at a time, and its answer piece by piece. Every call waits until a time of its caller
// at most; for send() and read_head() it limits all that they do.
//
//   dial() -> send(), read_head(), read() until is_done(), take_body() -> send() if may_go_on() ..
//
// Errors of all: timed_out; unauthorized (the server's certificate is refused); bad_value (what it
// sends is not HTTP, or has a head of more than 8 KiB); payload_too_large; io. Their texts go on
// behind "SERVER: ". After an error the connection is of no use.
// Thread: one. Only blocking_http_connection.cc includes Beast.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/server_stream.h"

namespace hocket {

class BlockingHttpConnection {
 public:
  // Connects to the first of `addresses` that takes a connection; each has its share of the time.
  // tls: null: without TLS. host: the name that the server's certificate must have.
  static Result<BlockingHttpConnection> dial(const std::vector<SocketAddress>& addresses,
                                             const std::shared_ptr<const TlsContext>& tls,
                                             const std::string& host, TimePoint until);
  BlockingHttpConnection(BlockingHttpConnection&&) noexcept;
  BlockingHttpConnection& operator=(BlockingHttpConnection&&) noexcept;
  ~BlockingHttpConnection();

  // Sends a request, head and body as they travel. max_body_bytes: limit of the answer's body.
  // Precondition: may_go_on().
  Result<void> send(std::string_view request, size_t max_body_bytes, TimePoint until);
  Result<void> read_head(TimePoint until);
  // Reads more of the body, once. Returns false if nothing came before `until`.
  // Precondition: !is_done().
  Result<bool> read(TimePoint until);
  // Call after read_head() if the answer may have no end; then take_body() limits its memory.
  void lift_body_limit();

  bool has_begun() const;  // true if some of the answer has come
  bool is_done() const;    // true if all of it has
  // True if another request may be sent.
  bool may_go_on() const;
  int status() const;
  std::string_view content_type() const;
  // Returns what was read of the body since the last call.
  std::string take_body();

  const Fd& socket() const { return stream_.socket(); }

 private:
  struct Parser;
  explicit BlockingHttpConnection(ServerStream stream);
  Result<void> begin_tls(TimePoint until);
  Result<void> parse();

  ServerStream stream_;
  std::unique_ptr<Parser> parser_;  // reads the last answer; null: nothing was asked
  std::string in_;                  // bytes that the parser has not taken
};

}  // namespace hocket
