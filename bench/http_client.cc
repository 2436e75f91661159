#include "bench/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <optional>

#include "server/sse.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;
using Request = http::request<http::string_body>;
using Parser = http::response_parser<http::string_body>;

bool is_event_stream(const Parser& parser) {
  return parser.get()[http::field::content_type].starts_with("text/event-stream");
}

// Gone before the answer began: what a kept connection looks like that the server has closed.
bool is_stale(const Code& code) {
  return code == http::error::end_of_stream || code == asio::error::eof ||
         code == asio::error::connection_reset || code == asio::error::broken_pipe;
}

}  // namespace

struct BlockingHttpClient::State {
  explicit State(Options given) : options(std::move(given)), stream(io) {}

  // Starts an operation and waits for it; synchronous calls of the socket would know no time-out.
  template <class Start>
  Code wait(Start&& start) {
    Code result;
    stream.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(options.timeout_s)));
    start([&result](const Code& code, auto&&...) { result = code; });
    io.restart();
    io.run();
    return result;
  }
  Code connect() {
    buffer.clear();
    stream.close();
    Code code;
    asio::ip::tcp::resolver resolver(io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), code);
    if (code) return code;
    code = wait([&](auto done) { stream.async_connect(found, std::move(done)); });
    if (!code) code = stream.socket().set_option(asio::ip::tcp::no_delay(true), code);
    connected = !code;
    return code;
  }
  // Sends and reads up to the end of the answer's head.
  Code begin(const Request& request, std::optional<Parser>& parser) {
    Code code;
    for (bool again = connected; true; again = false) {
      if (!connected) code = connect();
      if (code) return code;
      code = wait([&](auto done) { http::async_write(stream, request, std::move(done)); });
      parser.emplace();
      parser->body_limit(boost::none);
      if (!code)
        code = wait(
            [&](auto done) { http::async_read_header(stream, buffer, *parser, std::move(done)); });
      if (code) connected = false;
      if (!code || !again || !is_stale(code)) return code;
      code = {};
    }
  }
  Error broken(const Code& code) {
    connected = false;
    stream.close();
    if (code == beast::error::timeout)
      return error(ErrorCode::request_timeout, "{}:{} was silent for {} s", options.host,
                   options.port, options.timeout_s);
    return error(ErrorCode::io, "no answer from {}:{}: {}", options.host, options.port,
                 code.message());
  }
  Result<HttpAnswer> ask(http::verb verb, std::string_view path, std::string_view json,
                         const OnEvent* event);

  Options options;
  asio::io_context io{1};
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool connected = false;
};

Result<HttpAnswer> BlockingHttpClient::State::ask(http::verb verb, std::string_view path,
                                                  std::string_view json, const OnEvent* event) {
  Request request(verb, path, 11);
  request.set(http::field::host, options.host + ":" + std::to_string(options.port));
  request.set(http::field::user_agent, "hocket");
  if (!options.api_key.empty())
    request.set(http::field::authorization, "Bearer " + options.api_key);
  if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
  request.body() = json;
  request.prepare_payload();

  std::optional<Parser> parser;
  if (const Code code = begin(request, parser)) return fail(broken(code));
  const bool streaming = event != nullptr && is_event_stream(*parser);
  SseReader events;
  while (!parser->is_done()) {
    const Code code =
        wait([&](auto done) { http::async_read_some(stream, buffer, *parser, std::move(done)); });
    if (code) return fail(broken(code));
    if (!streaming) continue;
    std::string& fresh = parser->get().body();
    for (const std::string& data : events.feed(fresh)) (*event)(data);
    fresh.clear();
  }
  if (!parser->get().keep_alive()) {
    connected = false;
    stream.close();
  }
  return HttpAnswer{static_cast<int>(parser->get().result_int()), std::move(parser->get().body())};
}

BlockingHttpClient::BlockingHttpClient(Options options)
    : state_(std::make_unique<State>(std::move(options))) {}
BlockingHttpClient::~BlockingHttpClient() = default;
BlockingHttpClient::BlockingHttpClient(BlockingHttpClient&&) noexcept = default;

Result<HttpAnswer> BlockingHttpClient::get(std::string_view path) {
  return state_->ask(http::verb::get, path, {}, nullptr);
}

Result<HttpAnswer> BlockingHttpClient::post(std::string_view path, std::string_view json) {
  return state_->ask(http::verb::post, path, json, nullptr);
}

Result<HttpAnswer> BlockingHttpClient::stream(std::string_view path, std::string_view json,
                                              const OnEvent& event) {
  return state_->ask(http::verb::post, path, json, &event);
}

}  // namespace hocket
