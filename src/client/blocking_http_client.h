// A small blocking HTTP/1.1 client for hocket's own commands: JSON, event streams, time-outs,
// keep-alive, TLS.   Thread: any, one at a time for one client.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

struct HttpAnswer {
  int status = 0;
  std::string body;  // empty if the answer was a stream of events
};

class BlockingHttpClient {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 30000;
    std::string api_key;     // empty: none
    double timeout_s = 300;  // limit for connecting, for sending, and for each wait for data
    // Limits of an answer's body, unless it is a stream of events. Its head has at most 8 KiB.
    double max_body_s = 600;
    size_t max_body_bytes = size_t{256} << 20;
    bool tls = false;
    std::string ca_file;  // PEM file of CA certificates to trust in place of the system's
  };
  explicit BlockingHttpClient(Options options);
  ~BlockingHttpClient();
  BlockingHttpClient(BlockingHttpClient&&) noexcept;

  // Connects when needed and keeps the connection; if the server has closed it meanwhile, connects
  // again, once. Errors: io (no connection, a broken one, an answer that is too long, a certificate
  // that is not trusted, a CA file that cannot be read), request_timeout.
  Result<HttpAnswer> get(std::string_view path);
  Result<HttpAnswer> post(std::string_view path, std::string_view json);
  // Calls `event` with the data of each event as it arrives, [DONE] included. An answer that is no
  // event stream, such as an error's JSON, is returned in the body.
  using OnEvent = std::function<void(std::string_view data)>;
  Result<HttpAnswer> stream(std::string_view path, std::string_view json, const OnEvent& event);

  // Returns host, port and TLS of "https://host:port" or "http://host". Errors: bad_value.
  static Result<Options> read_url(std::string_view url);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
