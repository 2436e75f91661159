#include "client/blocking_http_client.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "cluster/blocking_http_connection.h"
#include "server/http/sse.h"

namespace hocket {

struct BlockingHttpClient::State {
  explicit State(Options given)
      : options(std::move(given)),
        server{.host = options.host, .port = static_cast<uint16_t>(options.port)} {}

  TimePoint limit() const { return RealClock().now() + from_seconds(options.timeout_s); }
  Result<void> connect();
  // Sends the request and reads the answer's head.
  Result<void> begin(std::string_view request);
  // Reads an answer that is no stream of events.
  Result<std::string> read_body();
  // Calls `event` with the data of each event.
  Result<void> read_events(const OnEvent& event);
  Result<HttpAnswer> ask(std::string_view verb, std::string_view path, std::string_view json,
                         const OnEvent* event);
  // These end the connection.
  Error silent();
  Error broken(const Error& why);
  Error too_long(std::string_view limit);

  const Options options;
  const HostPort server;
  std::shared_ptr<const TlsContext> tls;  // null until it is needed
  std::optional<BlockingHttpConnection> connection;
};

Error BlockingHttpClient::State::silent() {
  connection.reset();
  return error(ErrorCode::request_timeout, "{} was silent for {} s", to_text(server),
               options.timeout_s);
}

Error BlockingHttpClient::State::broken(const Error& why) {
  if (why.code == ErrorCode::timed_out) return silent();
  if (why.code == ErrorCode::payload_too_large)
    return too_long(fmt::format("{} bytes", options.max_body_bytes));
  connection.reset();
  return error(ErrorCode::io, "no answer from {}: {}", to_text(server), why.message);
}

Error BlockingHttpClient::State::too_long(std::string_view limit) {
  connection.reset();
  return error(ErrorCode::io, "the answer of {} is longer than {}", to_text(server), limit);
}

Result<void> BlockingHttpClient::State::connect() {
  if (options.tls && tls == nullptr) {
    auto made = TlsContext::for_servers({.ca = options.ca_file}, "ssl", "-ca");
    if (!made) {
      made.error().code = ErrorCode::io;
      return fail(std::move(made.error()));
    }
    tls = *std::move(made);
  }
  const auto addresses = resolve(server);
  if (!addresses) return fail(broken(addresses.error()));
  auto made = BlockingHttpConnection::dial(*addresses, tls, options.host, limit());
  if (!made) return fail(broken(made.error()));
  connection = *std::move(made);
  return {};
}

// Connects again, once, if a kept connection turns out to be closed. One whose last answer was not
// read to its end, because a callback threw, cannot be kept.
Result<void> BlockingHttpClient::State::begin(std::string_view request) {
  if (connection && !connection->may_go_on()) connection.reset();
  for (bool is_kept = connection.has_value();; is_kept = false) {
    if (!connection) HOCKET_TRY_VOID(connect());
    auto begun = connection->send(request, options.max_body_bytes, limit());
    if (begun) begun = connection->read_head(limit());
    if (begun) return {};
    const bool is_stale =
        is_kept && begun.error().code == ErrorCode::io && !connection->has_begun();
    if (!is_stale) return fail(broken(begun.error()));
    connection.reset();
  }
}

Result<std::string> BlockingHttpClient::State::read_body() {
  const TimePoint end = RealClock().now() + from_seconds(options.max_body_s);
  while (!connection->is_done()) {
    const auto came = connection->read(std::min(limit(), end));
    if (!came) return fail(broken(came.error()));
    // A wait alone would not end it, since bytes that are there already are read without one.
    if (!connection->is_done() && RealClock().now() >= end)
      return fail(too_long(fmt::format("{} s", options.max_body_s)));
    if (!*came) return fail(silent());
  }
  return connection->take_body();
}

Result<void> BlockingHttpClient::State::read_events(const OnEvent& event) {
  connection->lift_body_limit();
  SseReader events;
  while (!connection->is_done()) {
    const auto came = connection->read(limit());
    if (!came) return fail(broken(came.error()));
    if (!*came) return fail(silent());
    for (const std::string& data : events.feed(connection->take_body())) event(data);
  }
  return {};
}

Result<HttpAnswer> BlockingHttpClient::State::ask(std::string_view verb, std::string_view path,
                                                  std::string_view json, const OnEvent* event) {
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: hocket\r\n", verb,
                                    path, to_text(server));
  if (!options.api_key.empty())
    request += fmt::format("Authorization: Bearer {}\r\n", options.api_key);
  if (verb == "POST")
    request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", json.size());
  request += "\r\n";
  request += json;
  HOCKET_TRY_VOID(begin(request));
  HttpAnswer answer{.status = connection->status(), .body = {}};
  if (event != nullptr && connection->content_type().starts_with("text/event-stream")) {
    HOCKET_TRY_VOID(read_events(*event));
  } else {
    HOCKET_TRY(answer.body, read_body());
  }
  if (!connection->may_go_on()) connection.reset();
  return answer;
}

BlockingHttpClient::BlockingHttpClient(Options options)
    : state_(std::make_unique<State>(std::move(options))) {}
BlockingHttpClient::~BlockingHttpClient() = default;
BlockingHttpClient::BlockingHttpClient(BlockingHttpClient&&) noexcept = default;

Result<BlockingHttpClient::Options> BlockingHttpClient::read_url(std::string_view url) {
  Options out;
  std::string_view rest = url;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!rest.starts_with(scheme)) continue;
    rest.remove_prefix(scheme.size());
    out.tls = scheme == "https://";
    out.port = out.tls ? 443 : 80;
    break;
  }
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.find(':', rest.starts_with('[') ? rest.find(']') : 0);
  out.host = rest.substr(0, colon);
  if (out.host.starts_with('[') && out.host.ends_with(']'))
    out.host = out.host.substr(1, out.host.size() - 2);
  bool good = rest.size() < url.size() && !out.host.empty() && rest.find('/') == rest.npos;
  if (colon != rest.npos) {
    const std::string_view port = rest.substr(colon + 1);
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    good = good && code == std::errc{} && end == port.data() + port.size() && out.port > 0 &&
           out.port < 65536;
  }
  if (good) return out;
  return fail(error(ErrorCode::bad_value, "'{}' is not the address of a server", url)
                  .with_fix("http://127.0.0.1:30000, or https://host:port; no path")
                  .with_param("url"));
}

Result<HttpAnswer> BlockingHttpClient::get(std::string_view path) {
  return state_->ask("GET", path, {}, nullptr);
}

Result<HttpAnswer> BlockingHttpClient::post(std::string_view path, std::string_view json) {
  return state_->ask("POST", path, json, nullptr);
}

Result<HttpAnswer> BlockingHttpClient::stream(std::string_view path, std::string_view json,
                                              const OnEvent& event) {
  return state_->ask("POST", path, json, &event);
}

}  // namespace hocket
