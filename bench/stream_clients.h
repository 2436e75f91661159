// Many clients of /generate that stream answers, all in one thread: an event loop for a thousand of
// them needs little time compared with the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace hocket {

// The request of a group of clients. Each client sends it again when its answer has ended.
struct StreamRequest {
  std::string body;  // JSON for /generate, with "stream": true
  int num_clients = 0;
};

// The results of a group since the previous take().
struct StreamResults {
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

  // Connects a group of clients and sends their requests. Returns the group's number.   Errors: io.
  Result<size_t> add(const StreamRequest& ask);
  // Reads answers and sends requests again for `seconds`.
  void run(double seconds);
  // Returns the group's results and clears them.
  StreamResults take(size_t group);
  // Returns the number of clients of the group whose answer has not ended.
  int num_open(size_t group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
