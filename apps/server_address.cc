#include "apps/server_address.h"

#include <fmt/format.h>

namespace hocket {

Result<void> take_url(const std::string& url, BlockingHttpClient::Options& server) {
  if (url.empty()) return {};
  HOCKET_TRY(const auto there, BlockingHttpClient::read_url(url));
  server.host = there.host;
  server.port = there.port;
  server.tls = there.tls;
  return {};
}

FlagGroup server_flags(BlockingHttpClient::Options& server, std::string& url) {
  return {
      "Server",
      {{"host", &server.host, "host of the server", ""},
       {"port", &server.port, "port of the server", ""},
       {"url", &url, "http://host:port or https://host:port, in place of --host and --port", ""},
       {"ssl-ca", &server.ca_file, "certificates that vouch for the server, PEM, with https", ""},
       {"api-key", &server.api_key, "key of the server", ""}}};
}

std::string text_of(const BlockingHttpClient::Options& server) {
  const bool is_ipv6 = server.host.find(':') != server.host.npos;
  return fmt::format("{}://{}{}{}:{}", server.tls ? "https" : "http", is_ipv6 ? "[" : "",
                     server.host, is_ipv6 ? "]" : "", server.port);
}

}  // namespace hocket
