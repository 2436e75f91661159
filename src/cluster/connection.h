// Sends and receives messages over one non-blocking socket; an epoll set wakes the thread for it.
// Thread: the control plane's.
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cluster/socket.h"
#include "cluster/tls.h"
#include "cluster/wire.h"

namespace hocket {

// Waits for the sockets of one thread; each event carries the token of its socket.
class Poller {
 public:
  // All sockets of a control plane together, strangers (ClusterOptions::max_strangers) included,
  // are fewer, so one call returns all that are ready.
  static constexpr size_t kMaxEvents = 512;

  Poller();
  void add(const Fd& fd, uint64_t token, uint32_t events);
  void change(const Fd& fd, uint64_t token, uint32_t events);
  void remove(const Fd& fd);
  // Sleeps until a socket is ready or `until` is reached (rounded up to 1 ms, at most 60 s).
  // Returns at most kMaxEvents events; the next call returns the rest.
  std::span<const epoll_event> wait(TimePoint until);

 private:
  Fd epoll_;
  epoll_event events_[kMaxEvents];
};

class Connection {
 public:
  // If more unsent bytes than these wait, the connection ends, because its peer does not read.
  static constexpr size_t kMaxUnsentBytes = 2 * kMaxFrameBytes + (size_t{2} << 20);

  // Adds the socket to `poller`, which must outlive the connection; events carry `token`.
  Connection(Fd fd, Poller& poller, uint64_t token);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // From here on all bytes are inside TLS, also those received that next() has not taken. Messages
  // may be sent at once; they wait for the handshake.
  void begin_tls(std::shared_ptr<const TlsContext> context, TlsEnd end);
  // Reads the bytes that the kernel has received, up to 256 KiB.
  void receive();
  // Returns the next whole message, or nullopt if it is not complete yet. Errors: those of
  // frame_length() and parse_frame(); nothing more can be read then.
  Result<std::optional<Message>> next(size_t max_frame_bytes);
  // Sends at once the bytes that the kernel takes; flush() sends the rest when the socket is
  // writable.
  void send(const Message& message);
  void flush();

  // Returns why the connection ended; next() still returns the messages that arrived before. The
  // code is unauthorized if the handshake of TLS failed, else lost_rank.
  const std::optional<Error>& ended() const { return ended_; }
  // Returns the number of bytes that have arrived, those of TLS included.
  size_t received_bytes() const { return received_bytes_; }
  // Closes the sending direction; the peer sees the end after it has read all bytes.
  void finish();

 private:
  void end(Error why) {
    if (!ended_) ended_ = std::move(why);
  }

  void take(std::string_view bytes);
  void end_if_too_much_waits();

  Fd fd_;
  Poller& poller_;
  uint64_t token_;
  std::string in_, out_;
  size_t read_ = 0, sent_ = 0;  // bytes of in_ that next() took; bytes of out_ that the kernel took
  size_t received_bytes_ = 0;
  bool waits_to_write_ = false;
  std::unique_ptr<TlsStream> tls_;  // null: without TLS
  std::optional<Error> ended_;
};

}  // namespace hocket
