// One TCP connection between a service that has pages and one that asks for them.
//
//   server -> hello, asker -> proof, server -> welcome      the cluster's handshake
//   (cluster/auth.h) then frames: u32 length of what follows | u8 type | payload | HMAC-SHA-256
//
// The sum covers the frame, its direction and its number on the connection, under a key made of the
// cluster's token and both nonces. So a frame that was damaged, repeated, left out or made by
// someone without the token ends the connection. Nothing is encrypted: a network where others can
// read needs a tunnel. Numbers are little-endian.
//
//   asker                                        server
//   form: 32 bytes that name model and form      ok, or no: a text
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
#include "cluster/auth.h"
#include "cluster/socket.h"

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
};

class PageLink {
 public:
  static constexpr size_t kMaxKeys = 4096;  // in one frame
  // Limit of a frame that a server takes: a prompt of a million tokens.
  static constexpr size_t kMaxAskedBytes = size_t{4} << 20;
  // Limit of the wait for a peer that sends nothing and reads nothing.
  static constexpr Duration kSilence = std::chrono::seconds(5);
  static constexpr Duration kConnect = std::chrono::seconds(1);

  // `is_over` ends waits early. `name` is the other side, for errors.
  PageLink(Fd socket, std::string name, std::function<bool()> is_over);
  bool is_over() const { return is_over_(); }
  // Shake hands. Errors: io; unauthorized if the other side does not know the token.
  Result<void> greet(std::string_view token);      // the server's side
  Result<void> introduce(std::string_view token);  // the asker's

  // `payload` may come in two pieces. Errors: io.
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
  Result<void> write_all(std::string_view bytes, Duration limit);
  // `limit` is for each wait, `end` for all of them.
  Result<void> read_all(char* to, size_t size, Duration limit, TimePoint end = TimePoint::max());
  Result<void> wait(short events, TimePoint until);
  Result<Message> read_message();
  void make_key(std::string_view token, const Nonce& server, const Nonce& asker);
  Proof sum_of(bool by_server, uint64_t number, std::string_view frame) const;

  const Fd socket_;
  const std::string name_;
  const std::function<bool()> is_over_;
  Proof key_{};
  bool is_server_ = false;
  uint64_t num_sent_ = 0, num_received_ = 0;
  std::string in_, out_;
};

}  // namespace hocket
