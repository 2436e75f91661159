// A small blocking HTTP/1.1 client for our own commands: JSON, event streams, time-outs,
// keep-alive, TLS. Beast stays inside http_client.cc.   Thread: any, one at a time for one client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

struct HttpAnswer {
  int status = 0;
  std::string body;  // empty where it was a stream of events
};

class BlockingHttpClient {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 30000;
    std::string api_key;     // empty: none
    double timeout_s = 300;  // for connecting, sending, and each silence of the server
    bool tls = false;
    std::string ca_file;  // PEM: whom to believe in place of those that the system believes
  };
  explicit BlockingHttpClient(Options options);
  ~BlockingHttpClient();
  BlockingHttpClient(BlockingHttpClient&&) noexcept;

  // The connection is made when needed and kept; one that the server has closed meanwhile is made
  // anew, once. Errors: io (no connection, or it broke, or a certificate that is not believed),
  // request_timeout; bad_value (the CA file).
  Result<HttpAnswer> get(std::string_view path);
  Result<HttpAnswer> post(std::string_view path, std::string_view json);
  // Calls `event` with the data of each event as it arrives, [DONE] included. An answer that is no
  // event stream (an error's JSON) comes back in the body.
  using OnEvent = std::function<void(std::string_view data)>;
  Result<HttpAnswer> stream(std::string_view path, std::string_view json, const OnEvent& event);

  // Host, port and TLS of "https://host:port" or "http://host". Errors: bad_value.
  static Result<Options> read_url(std::string_view url);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
