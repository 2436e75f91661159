// Which server a command asks: a host and port or an address, the key, and who vouches for it.
#pragma once

#include <string>

#include "apps/flags.h"
#include "bench/http_client.h"

namespace hocket {

// Host, port and TLS of `url`, where it is given, in place of those of `server`. Errors: bad_value.
Result<void> take_url(const std::string& url, BlockingHttpClient::Options& server);

// Host, port, address, certificate and key.
FlagGroup server_flags(BlockingHttpClient::Options& server, std::string& url);

// "https://host:port".
std::string text_of(const BlockingHttpClient::Options& server);

}  // namespace hocket
