#include "apps/flags.h"

namespace hocket {

FlagGroup observe_flags(ServerSettings& s) {
  ObserveSettings& o = s.observe;
  return {
      "Observe",
      {{"log-level", &s.http.log_level, "debug, info, warning, error or off", ""},
       {"log-format", &o.log_format, "format of log lines: text, or json: one object a line", ""},
       {"log-requests", &o.log_requests, "a line when a request begins and one when it ends", ""},
       {"log-requests-level", &o.log_requests_level,
        "content of these lines: 0 lengths and times, 1 how tokens are chosen too, 2 the "
        "beginnings "
        "of prompts and answers too, 3 all of them",
        ""},
       {"enable-trace", &o.enable_trace, "sends spans of requests to --otlp-traces-endpoint", ""},
       {"otlp-traces-endpoint", &o.otlp_traces_endpoint,
        "URL of the OTLP/HTTP collector: http://HOST:PORT/PATH", ""},
       {"dump-requests-folder", &o.dump_requests_folder,
        "keeps requests, with their prompts, in files for hocket replay", ""},
       {"dump-requests-bytes", &o.dump_requests_bytes, "size at which the next file begins", ""},
       {"dump-requests-files", &o.dump_requests_files,
        "largest number of files in the folder; the oldest are deleted", ""},
       {"crash-dump-folder", &o.crash_dump_folder,
        "where the last steps and requests are written when the server crashes or hangs, for "
        "hocket crash",
        ""},
       {"admin-folder", &o.admin_folder,
        "folder for files that admins request while the server runs (profiles, dumped requests); "
        "none are written if absent",
        ""},
       {"metrics-compat", &o.metrics_compat,
        "further names for the metrics in /metrics: sglang, vllm, or sglang,vllm", ""}}};
}

}  // namespace hocket
