#include "bench/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <chrono>
#include <optional>

#include "server/http/sse.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Code = boost::system::error_code;
using BeastRequest = http::request<http::string_body>;
using BeastParser = http::response_parser<http::string_body>;

bool is_event_stream(const BeastParser& parser) {
  return parser.get()[http::field::content_type].starts_with("text/event-stream");
}

// Returns true for the errors of a kept connection that the server has closed meanwhile.
bool is_stale(const Code& code) {
  return code == http::error::end_of_stream || code == asio::error::eof ||
         code == asio::error::connection_reset || code == asio::error::broken_pipe;
}

}  // namespace

// A socket, plain or under TLS, so that Beast's templates are compiled once for both.
class PlainOrTlsSocket {
 public:
  using executor_type =  // NOLINT(readability-identifier-naming): Asio's
      beast::tcp_stream::executor_type;
  explicit PlainOrTlsSocket(asio::io_context& io) : tcp(io) {}

  executor_type get_executor() { return tcp.get_executor(); }
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(Code, size_t)>(
        [this](auto handler, const Buffers& into) {
          if (tls)
            tls->async_read_some(into, std::move(handler));
          else
            tcp.async_read_some(into, std::move(handler));
        },
        token, buffers);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(Code, size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls)
            tls->async_write_some(from, std::move(handler));
          else
            tcp.async_write_some(from, std::move(handler));
        },
        token, buffers);
  }
  void close() {
    tls.reset();
    tcp.close();
  }

  beast::tcp_stream tcp;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls;
};

struct BlockingHttpClient::State {
  explicit State(Options given) : options(std::move(given)), stream(io) {}

  // Starts an operation and waits for it; the socket's synchronous calls have no time-out.
  template <class Start>
  Code wait(Start&& start) {
    Code result;
    stream.tcp.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
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
    code = wait([&](auto done) { stream.tcp.async_connect(found, std::move(done)); });
    if (!code) code = stream.tcp.socket().set_option(asio::ip::tcp::no_delay(true), code);
    if (!code && options.tls) code = begin_tls();
    connected = !code;
    return code;
  }
  Code begin_tls() {
    Code code;
    if (!context) {
      context.emplace(asio::ssl::context::tls_client);
      SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
      if (options.ca_file.empty())
        context->set_default_verify_paths(code);
      else
        context->load_verify_file(options.ca_file, code);
      if (code) return context.reset(), code;
    }
    auto& tls = stream.tls.emplace(stream.tcp, *context);
    tls.set_verify_mode(asio::ssl::verify_peer, code);
    if (!code) tls.set_verify_callback(asio::ssl::host_name_verification(options.host), code);
    if (!code) SSL_set_tlsext_host_name(tls.native_handle(), options.host.c_str());
    if (code) return code;
    return wait(
        [&](auto done) { tls.async_handshake(asio::ssl::stream_base::client, std::move(done)); });
  }
  // Sends the request and reads the answer's head. Connects again, once, if a kept connection
  // turns out to be closed.
  Code begin(const BeastRequest& request, std::optional<BeastParser>& parser) {
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
  std::optional<asio::ssl::context> context;
  PlainOrTlsSocket stream;
  beast::flat_buffer buffer;
  bool connected = false;
};

Result<HttpAnswer> BlockingHttpClient::State::ask(http::verb verb, std::string_view path,
                                                  std::string_view json, const OnEvent* event) {
  BeastRequest request(verb, path, 11);
  request.set(http::field::host, options.host + ":" + std::to_string(options.port));
  request.set(http::field::user_agent, "hocket");
  if (!options.api_key.empty())
    request.set(http::field::authorization, "Bearer " + options.api_key);
  if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
  request.body() = json;
  request.prepare_payload();

  std::optional<BeastParser> parser;
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
