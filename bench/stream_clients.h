// Many clients of /generate that stream answers, all in one thread: what an event loop needs of a
// thousand of them is little beside the server's work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

// What a group of clients asks for, again and again, each one answer at a time.
struct StreamAsk {
  std::string body;  // of /generate, with "stream": true
  int num_clients = 0;
};

// What a group has seen since it was last asked.
struct StreamsSeen {
  int64_t num_done = 0, num_failed = 0;
  int64_t num_events = 0;
  std::vector<double> first_byte_ms;  // from the request's last byte sent to the answer's first
  std::vector<double> whole_ms;
};

// Owns the sockets.   Thread: one.
class StreamClients {
 public:
  explicit StreamClients(int port);
  ~StreamClients();
  StreamClients(const StreamClients&) = delete;
  StreamClients& operator=(const StreamClients&) = delete;

  // Connects and asks. The number of the group.   Errors: io.
  Result<size_t> add(const StreamAsk& ask);
  // Reads and asks again for so long.
  void run(double seconds);
  StreamsSeen take(size_t group);
  // Connections of the group whose request has been sent and not answered to its end.
  int num_open(size_t group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
