// A server that answers one request on each connection as the test says, and with no end if the
// test likes. Tests only.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <climits>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cluster/socket.h"

namespace hocket {

class FakeServer {
 public:
  // It sends the head, then the piece again and again until the client has left.
  struct Answer {
    std::string head, piece;
    int num_pieces = INT_MAX;
    Duration pause{};         // before each piece
    int num_connections = 1;  // one after the other
  };
  explicit FakeServer(Answer answer)
      : answer_(std::move(answer)), listener_(listen()), thread_([this] { serve(); }) {}
  ~FakeServer() {
    shutdown(listener_.get(), SHUT_RDWR);  // if no client connected
    thread_.join();
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  int port() const { return local_address(listener_).port(); }

 private:
  static Fd listen() {
    auto listener = listen_on(resolve({"127.0.0.1", 0})->front());
    HOCKET_CHECK(listener.has_value());
    return *std::move(listener);
  }
  static bool say(const Fd& to, const std::string& bytes) {
    return send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  }
  void serve() {
    for (int i = 0; i < answer_.num_connections; ++i) serve_one();
  }
  void serve_one() {
    pollfd asked_for{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    poll(&asked_for, 1, -1);  // the listener does not block
    const Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string asked;
    char byte = 0;
    while (!asked.ends_with("\r\n\r\n") && recv(client.get(), &byte, 1, 0) == 1) asked += byte;
    bool is_there = say(client, answer_.head);
    for (int i = 0; is_there && i < answer_.num_pieces; ++i) {
      std::this_thread::sleep_for(answer_.pause);
      is_there = say(client, answer_.piece);
    }
    // The end of the stream tells a client that waits for more that there is none.
    shutdown(client.get(), SHUT_WR);
    while (is_there && recv(client.get(), &byte, 1, 0) == 1) {
    }
  }

  const Answer answer_;
  const Fd listener_;
  std::thread thread_;
};

}  // namespace hocket
