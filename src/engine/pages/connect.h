// Connects to another service within a limit.   Thread: any.
#pragma once

#include <functional>
#include <span>

#include "cluster/socket.h"

namespace hocket {

// Connects to the first of the addresses that answers; each may take `limit`. `is_over` ends waits
// early. Errors: io, with the reason alone: the caller knows who it is.
Result<Fd> connect_to_first(std::span<const SocketAddress> addresses, Duration limit,
                            const std::function<bool()>& is_over);

}  // namespace hocket
