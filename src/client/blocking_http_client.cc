#include "client/blocking_http_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
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

// Limit of the bytes that were received and not parsed yet, such as the beginning of a chunk.
constexpr size_t kMaxUnparsedBytes = size_t{256} << 10;

// Returns true for the errors of a kept connection that the server has closed meanwhile.
bool is_stale(const Code& code) {
  return code == http::error::end_of_stream || code == asio::error::eof ||
         code == asio::error::connection_reset || code == asio::error::broken_pipe;
}

}  // namespace

// A socket whose calls wait until a deadline. Asio's synchronous calls know none, and its
// asynchronous ones take the compiler twice as long.
class DeadlineSocket {
 public:
  using executor_type =  // NOLINT(readability-identifier-naming): Asio's
      asio::ip::tcp::socket::executor_type;
  using lowest_layer_type =  // NOLINT(readability-identifier-naming): Asio's
      asio::ip::tcp::socket;
  using Clock = std::chrono::steady_clock;

  explicit DeadlineSocket(asio::io_context& io) : tcp_(io) {}

  executor_type get_executor() { return tcp_.get_executor(); }
  lowest_layer_type& lowest_layer() { return tcp_; }

  void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }
  Code connect(const asio::ip::tcp::endpoint& to) {
    Code code;
    tcp_.close(code);
    if (tcp_.open(to.protocol(), code)) return code;
    if (tcp_.non_blocking(true, code)) return code;
    if (::connect(tcp_.native_handle(), to.data(), static_cast<socklen_t>(to.size())) != 0) {
      if (errno != EINPROGRESS) return {errno, boost::system::system_category()};
      if ((code = wait(POLLOUT))) return code;
      int fault = 0;
      socklen_t size = sizeof fault;
      getsockopt(tcp_.native_handle(), SOL_SOCKET, SO_ERROR, &fault, &size);
      if (fault != 0) return {fault, boost::system::system_category()};
    }
    tcp_.set_option(asio::ip::tcp::no_delay(true), code);
    return code;
  }
  void close() {
    Code ignored;
    tcp_.close(ignored);
  }

  template <class Buffers>
  size_t read_some(const Buffers& into, Code& code) {
    return retry(POLLIN, code, [&] { return tcp_.read_some(into, code); });
  }
  template <class Buffers>
  size_t write_some(const Buffers& from, Code& code) {
    return retry(POLLOUT, code, [&] { return tcp_.write_some(from, code); });
  }

 private:
  // Waits for one of poll's events.
  Code wait(short event) {
    while (true) {
      const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
      if (remaining.count() <= 0) return beast::error::timeout;
      pollfd ready{.fd = tcp_.native_handle(), .events = event, .revents = 0};
      const int limit = static_cast<int>(std::min<int64_t>(remaining.count(), 3'600'000));
      const int found = poll(&ready, 1, limit);
      if (found > 0) return {};
      if (found < 0 && errno != EINTR) return {errno, boost::system::system_category()};
    }
  }
  template <class Call>
  size_t retry(short event, Code& code, Call&& call) {
    while (true) {
      const size_t count = call();
      if (code != asio::error::would_block) return count;
      if ((code = wait(event))) return 0;
    }
  }

  asio::ip::tcp::socket tcp_;
  Clock::time_point deadline_;
};

// The socket, or TLS over it, so that Beast's templates are compiled once for both. Beast asks for
// the forms that throw and does not call them here.
class PlainOrTlsStream {
 public:
  explicit PlainOrTlsStream(asio::io_context& io) : socket(io) {}

  template <class Buffers>
  size_t read_some(const Buffers& into, Code& code) {
    return tls ? tls->read_some(into, code) : socket.read_some(into, code);
  }
  template <class Buffers>
  size_t write_some(const Buffers& from, Code& code) {
    return tls ? tls->write_some(from, code) : socket.write_some(from, code);
  }
  template <class Buffers>
  size_t read_some(const Buffers& into) {
    Code code;
    const size_t count = read_some(into, code);
    return code ? throw boost::system::system_error(code) : count;
  }
  template <class Buffers>
  size_t write_some(const Buffers& from) {
    Code code;
    const size_t count = write_some(from, code);
    return code ? throw boost::system::system_error(code) : count;
  }
  void close() {
    tls.reset();
    socket.close();
  }

  DeadlineSocket socket;
  std::optional<asio::ssl::stream<DeadlineSocket&>> tls;
};

struct BlockingHttpClient::State {
  explicit State(Options given) : options(std::move(given)), stream(io) {}

  using TimePoint = DeadlineSocket::Clock::time_point;
  static TimePoint in_seconds(double seconds) {
    const std::chrono::duration<double> limit(seconds);
    return DeadlineSocket::Clock::now() +
           std::chrono::duration_cast<DeadlineSocket::Clock::duration>(limit);
  }
  // Gives the next operation its time, which ends at `end` at the latest.
  void begin_wait(TimePoint end = TimePoint::max()) {
    stream.socket.set_deadline(std::min(in_seconds(options.timeout_s), end));
  }
  Code connect() {
    buffer.clear();
    stream.close();
    Code code;
    asio::ip::tcp::resolver resolver(io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), code);
    if (code) return code;
    begin_wait();
    code = asio::error::host_not_found;
    for (const auto& entry : found)
      if (!(code = stream.socket.connect(entry.endpoint()))) break;
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
    auto& tls = stream.tls.emplace(stream.socket, *context);
    tls.set_verify_mode(asio::ssl::verify_peer, code);
    if (!code) tls.set_verify_callback(asio::ssl::host_name_verification(options.host), code);
    if (!code) SSL_set_tlsext_host_name(tls.native_handle(), options.host.c_str());
    if (code) return code;
    begin_wait();
    tls.handshake(asio::ssl::stream_base::client, code);
    return code;
  }
  // Sends the request and reads the answer's head. Connects again, once, if a kept connection
  // turns out to be closed.
  Code begin(const BeastRequest& request, std::optional<BeastParser>& parser) {
    Code code;
    for (bool again = connected; true; again = false) {
      if (!connected) code = connect();
      if (code) return code;
      begin_wait();
      http::write(stream, request, code);
      parser.emplace();
      parser->body_limit(boost::none);
      begin_wait();
      if (!code) http::read_header(stream, buffer, *parser, code);
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
  Error too_long(std::string_view limit) {
    connected = false;
    stream.close();
    return error(ErrorCode::io, "the answer of {}:{} is longer than {}", options.host, options.port,
                 limit);
  }
  // Reads an answer that is no stream of events.
  Result<void> read_body(BeastParser& parser);
  // Calls `event` with the data of each event.
  Result<void> read_events(BeastParser& parser, const OnEvent& event);
  Result<HttpAnswer> ask(http::verb verb, std::string_view path, std::string_view json,
                         const OnEvent* event);

  Options options;
  asio::io_context io{1};  // sockets need one; nothing runs in it
  std::optional<asio::ssl::context> context;
  PlainOrTlsStream stream;
  beast::flat_buffer buffer{kMaxUnparsedBytes};
  bool connected = false;
};

Result<void> BlockingHttpClient::State::read_body(BeastParser& parser) {
  const auto too_many = [&] {
    return fail(too_long(fmt::format("{} bytes", options.max_body_bytes)));
  };
  // Beast reserves the bytes that the head promises, before any of them comes.
  if (parser.content_length().value_or(0) > options.max_body_bytes) return too_many();
  const TimePoint end = in_seconds(options.max_body_s);
  while (!parser.is_done()) {
    begin_wait(end);
    Code code;
    http::read_some(stream, buffer, parser, code);
    // A wait alone would not end it, since bytes that are there already are read without one.
    if (!parser.is_done() && DeadlineSocket::Clock::now() >= end)
      return fail(too_long(fmt::format("{} s", options.max_body_s)));
    if (code) return fail(broken(code));
    if (parser.get().body().size() > options.max_body_bytes) return too_many();
  }
  return {};
}

Result<void> BlockingHttpClient::State::read_events(BeastParser& parser, const OnEvent& event) {
  SseReader events;
  while (!parser.is_done()) {
    begin_wait();
    Code code;
    http::read_some(stream, buffer, parser, code);
    if (code) return fail(broken(code));
    std::string& fresh = parser.get().body();
    for (const std::string& data : events.feed(fresh)) event(data);
    fresh.clear();
  }
  return {};
}

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
  if (event != nullptr && is_event_stream(*parser))
    HOCKET_TRY_VOID(read_events(*parser, *event));
  else
    HOCKET_TRY_VOID(read_body(*parser));
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
