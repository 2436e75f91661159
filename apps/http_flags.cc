#include "apps/flags.h"

namespace hocket {

FlagGroup http_flags(ServerSettings& s) {
  return {
      "HTTP",
      {{"host", &s.http.host, "address to listen on", ""},
       {"port", &s.http.port, "port to listen on; 0: any free one", ""},
       {"api-key", &s.http.api_key,
        "key that clients need on every path but /health, /livez, /readyz", ""},
       {"admin-api-key", &s.http.admin_api_key,
        "key for the admin paths (flush, profile, abort all); without one, and without "
        "--api-key-file, --api-key opens them too",
        ""},
       {"api-key-file", &s.http.api_key_file,
        "a key a line: NAME KEY [admin] [requests_per_minute=N] [tokens_per_minute=N] "
        "[concurrency=N]; SIGHUP reads it again",
        ""},
       {"share-prefixes", &s.http.share_prefixes,
        "clients of --api-key-file share cached prefixes: faster, but one client can learn from "
        "counts of cached tokens how the prompt of another begins",
        ""},
       {"ssl-certfile", &s.http.ssl_certfile,
        "certificate and its chain, PEM: the port speaks HTTPS; SIGHUP reads it again", ""},
       {"ssl-keyfile", &s.http.ssl_keyfile, "key of that certificate, PEM", ""},
       {"cors-origins", &s.http.cors_origins,
        "origins of other sites whose pages may send requests (CORS): "
        "https://a.example,http://localhost:5173 or *",
        ""},
       {"allowed-hosts", &s.http.allowed_hosts,
        "further host names accepted in the header Host, which is checked where there is no key or "
        "on a loopback address: llm.example,gateway or *",
        ""},
       {"max-connections", &s.http.max_connections,
        "largest number of open connections; beyond it the longest idle one is closed, or the new "
        "one gets 503",
        ""},
       {"max-body-bytes", &s.http.max_body_bytes, "largest request body", ""},
       {"request-memory-mib", &s.http.request_memory_mib,
        "memory that one request may hold, its body and its answer included; beyond: 413", ""},
       {"key-memory-mib", &s.http.key_memory_mib,
        "memory that the requests of one key of --api-key-file may hold; beyond: 429", ""},
       {"total-request-memory-mib", &s.http.total_request_memory_mib,
        "memory that all requests together may hold; beyond: 503", ""},
       {"response-store-mib", &s.http.response_store_mib,
        "memory for answers of /v1/responses that clients may ask for again; 0: none are kept", ""},
       {"stream-store-mib", &s.http.stream_store_mib,
        "memory for requests of streams, so that clients may resume them; 0: none are kept", ""},
       {"header-timeout", &s.http.header_timeout_s, "seconds for a request's whole head", ""},
       {"body-timeout", &s.http.body_timeout_s, "seconds for a request's whole body", ""},
       {"write-timeout", &s.http.write_timeout_s,
        "seconds for 64 KiB of an answer to leave; a slower client is cut off", ""},
       {"idle-timeout", &s.http.idle_timeout_s, "seconds between requests of a connection", ""},
       {"strict", &s.strict, "do not start if the server would change a setting or use a slow path",
        ""},
       {"shutdown-timeout", &s.http.shutdown_timeout_s,
        "seconds that SIGTERM waits for running requests", ""},
       {"watchdog-timeout", &s.http.watchdog_timeout_s,
        "seconds without a step before exit 6; 0: never", ""}}};
}

}  // namespace hocket
