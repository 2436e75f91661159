// Words to systemd about this service (Type=notify): that it is ready, what it does, that it lives.
#pragma once

#include <string_view>

namespace hocket {

// "READY=1", "STATUS=serving x", "STOPPING=1", "WATCHDOG=1"; several, a line each. Nothing where no
// service manager listens
// ($NOTIFY_SOCKET). Never waits; a word that is lost is lost.
void tell_service_manager(std::string_view words);

}  // namespace hocket
