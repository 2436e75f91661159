#include "apps/flags.h"

namespace hocket {

FlagGroup observe_flags(ServerSettings& s) {
  ObserveSettings& o = s.observe;
  return {"Observe",
          {{"log-level", &s.http.log_level, "debug, info, warning, error or off", ""},
           {"log-format", &o.log_format, "of log lines: text, or json: one object a line", ""}}};
}

}  // namespace hocket
