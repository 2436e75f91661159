// One TCP connection between a service that has pages and one that asks for them.
//
//   server -> hello, client -> proof, server -> welcome      the cluster's handshake
//   (cluster/token_proof.h), then frames:
//   u32 length of what follows | u8 type | payload | HMAC-SHA-256
//
// The sum covers the frame, its direction and its number on the connection, under a key made of the
// cluster's token and both nonces. So a frame that was damaged, repeated, left out or made by
// someone without the token ends the connection. With TLS (cluster/tls.h) all behind the hello is
// inside it, and frames have no sum, because records prove the same; without it nothing is
// encrypted. Numbers are little-endian.
//
//   client                                        server
//   form: 32 bytes that name the client's        ok and the size of the server's pages, a u32;
//   model, form and size of pages                no: a text; or busy: all connections are used
//   exist: keys                                  exist: a byte a key
//   prefill: namespace, tokens                   ok, or no: a text
//   get: kind, keys                              for each in order: waiting .., then page: key and
//                                                bytes; or absent, which ends the list
//
// Thread: one at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cluster/socket.h"
#include "cluster/tls.h"
#include "cluster/token_proof.h"

namespace hocket {

enum class PageFrame : uint8_t {
  form = 1,
  exist = 2,
  prefill = 3,
  get = 4,
  ok = 5,
  no = 6,
  waiting = 7,
  page = 8,
  absent = 9,
  busy = 10,
};

// Whether connections are inside TLS: those to other hosts, or all of them. Both sides decide by
// the address of the connection and their --cluster-tls.
struct PageTls {
  std::shared_ptr<const TlsContext> context;  // null: none
  bool on_loopback = false;
};
// Errors: bad_value: another word than on, off or auto, or `on` without a token; io.
Result<PageTls> read_page_tls(std::string_view cluster_tls, std::string_view token);

class PageLink {
 public:
  static constexpr size_t kMaxKeys = 4096;                    // in one frame
  static constexpr int64_t kMaxPageBytes = int64_t{1} << 30;  // a page or a record
  // Limit of a frame that a server takes: a prompt of a million tokens.
  static constexpr size_t kMaxAskedBytes = size_t{4} << 20;
  // A frame takes at most kSilence and the time that this speed needs. The limit holds for one that
  // arrives byte by byte, too.
  static constexpr int64_t kMinBytesPerSecond = 1 << 20;
  // Limit of the wait for a peer that sends nothing and reads nothing.
  static constexpr Duration kSilence = std::chrono::seconds(5);
  static constexpr Duration kConnect = std::chrono::seconds(1);

  // `is_over` ends waits early. `name` is the other side, for errors.
  PageLink(Fd socket, std::string name, std::function<bool()> is_over);
  bool is_over() const { return is_over_(); }
  // Shake hands. Errors: io; unauthorized if the other side does not know the token.
  // Errors also: unauthorized if one side is set to TLS and the other is not.
  Result<void> server_handshake(std::string_view token,
                                const PageTls& tls = {});  // the server's side
  Result<void> client_handshake(std::string_view token, const PageTls& tls = {});  // the client's

  // `payload` may be given in two pieces; `more` is not copied. Errors: io.
  Result<void> send(PageFrame type, std::string_view payload, std::span<const std::byte> more = {});
  struct Frame {
    PageFrame type = PageFrame::absent;
    std::string_view payload;  // lives until the next receive()
  };
  // Waits for the next frame, at most `limit`. Errors: io, also if it is longer than `max_bytes`.
  Result<Frame> receive(Duration limit, size_t max_bytes);
  // Returns true if a read would not block: the other side has ended the connection or sent bytes.
  bool is_readable() const;
  const std::string& name() const { return name_; }

 private:
  static TimePoint end_of(size_t size);
  // flags: MSG_MORE if the rest of the frame follows.
  Result<void> write_all(std::string_view bytes, TimePoint end, int flags = 0);
  // `limit` is for each wait, `end` for all of them.
  Result<void> read_all(char* to, size_t size, Duration limit, TimePoint end);
  Result<void> write_raw(std::string_view bytes, TimePoint end, int flags);
  // Returns the bytes that were received next, at most `size`; with TLS those of whole records.
  Result<size_t> read_some(char* to, size_t size, Duration limit, TimePoint end);
  Result<size_t> read_raw(char* to, size_t size, Duration limit, TimePoint end);
  bool uses(const PageTls& tls) const;
  Result<void> begin_tls(const PageTls& tls, TlsEnd end);
  size_t sum_bytes() const { return tls_ ? 0 : sizeof(Proof); }
  Result<void> wait(short events, TimePoint until);
  Result<Message> read_message();
  void make_key(std::string_view token, const Nonce& server, const Nonce& client);
  Proof sum_of(bool by_server, uint64_t number, std::string_view frame,
               std::span<const std::byte> more = {}) const;

  const Fd socket_;
  const std::string name_;
  const std::function<bool()> is_over_;
  Proof key_{};
  bool is_server_ = false;
  uint64_t num_sent_ = 0, num_received_ = 0;
  std::string in_, out_;
  std::unique_ptr<TlsStream> tls_;  // null: none
  std::string plain_, sealed_;      // with TLS: bytes to give, bytes to send
  size_t num_given_ = 0;            // bytes of plain_
};

}  // namespace hocket
