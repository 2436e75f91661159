// Messages over one non-blocking socket, and the epoll set that wakes its thread.
// Thread: the control plane's.
#pragma once

#include <sys/epoll.h>

#include <optional>
#include <span>
#include <string>

#include "cluster/socket.h"
#include "cluster/wire.h"

namespace hocket {

// Wakes for the sockets of one thread; a token says which.
class Poller {
 public:
  static constexpr size_t kMostEvents = 64;

  Poller();
  void add(const Fd& fd, uint64_t token, uint32_t events);
  void change(const Fd& fd, uint64_t token, uint32_t events);
  void remove(const Fd& fd);
  // Sleeps until something happened or `until` is reached, rounded up to a millisecond; the longest
  // sleep is a minute. At most kMostEvents are given; the rest comes next time.
  std::span<const epoll_event> wait(TimePoint until);

 private:
  Fd epoll_;
  epoll_event events_[kMostEvents];
};

class Connection {
 public:
  // Unsent bytes beyond this end the connection: its peer does not read.
  static constexpr size_t kMaxUnsentBytes = 2 * kMaxFrameBytes + (size_t{2} << 20);

  // `poller` outlives it. `watched` says what the socket waits for already, 0 for not in the set.
  Connection(Fd fd, Poller& poller, uint64_t token);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Takes what the kernel has, up to 256 KiB.
  void receive();
  // The next whole message. Errors: those of parse_frame; nothing more can be read then.
  Result<std::optional<Message>> next(size_t most_frame_bytes);
  // Sends at once what the kernel takes, the rest as it can.
  void send(const Message& message);
  void flush();

  // Why it ended; messages that came before can still be had by next().
  const std::optional<Error>& ended() const { return ended_; }
  bool all_sent() const { return sent_ == out_.size(); }
  size_t received_bytes() const { return received_bytes_; }
  // No more will be sent; the other side sees the end when it has read all.
  void finish();

 private:
  void end(Error why) {
    if (!ended_) ended_ = std::move(why);
  }

  Fd fd_;
  Poller& poller_;
  uint64_t token_;
  std::string in_, out_;
  size_t read_ = 0, sent_ = 0;  // of in_ that next() took; of out_ that the kernel took
  size_t received_bytes_ = 0;
  bool waits_to_write_ = false;
  std::optional<Error> ended_;
};

}  // namespace hocket
