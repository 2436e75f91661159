// The address of the server that a client command asks, with its key and CA certificate.
#pragma once

#include <string>

#include "apps/flags.h"
#include "client/blocking_http_client.h"

namespace hocket {

// Copies host, port and TLS of `url` into `server`, if `url` is not empty. Errors: bad_value.
Result<void> take_url(const std::string& url, BlockingHttpClient::Options& server);

// Returns the flags for host, port, URL, CA certificate and key.
FlagGroup server_flags(BlockingHttpClient::Options& server, std::string& url);

// Returns "https://host:port".
std::string text_of(const BlockingHttpClient::Options& server);

}  // namespace hocket
