// Messages to systemd about this service (Type=notify): readiness, status, watchdog.
#pragma once

#include <string_view>

namespace hocket {

// Sends "READY=1", "STATUS=serving x", "STOPPING=1" or "WATCHDOG=1"; several are one line each.
// Does nothing if $NOTIFY_SOCKET is not set. Never blocks; a message that cannot be sent is
// dropped.
void notify_service_manager(std::string_view words);

}  // namespace hocket
