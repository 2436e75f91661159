#include "engine/pages/connect.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace hocket {

Result<Fd> connect_to_first(std::span<const SocketAddress> addresses, Duration limit,
                            const std::function<bool()>& is_over) {
  const RealClock clock;
  std::string why = "it has no address";
  for (const SocketAddress& address : addresses) {
    auto socket = start_dial(address);
    if (!socket) {
      why = socket.error().message;
      continue;
    }
    const TimePoint until = clock.now() + limit;
    pollfd one{.fd = socket->get(), .events = POLLOUT, .revents = 0};
    int ready = 0;
    while (ready <= 0 && clock.now() < until && !is_over()) ready = poll(&one, 1, 50);
    const int problem = ready > 0 ? connect_error(*socket) : ETIMEDOUT;
    if (problem == 0) return *std::move(socket);
    why = std::strerror(problem);
  }
  return fail(ErrorCode::io, "{}", why);
}

}  // namespace hocket
