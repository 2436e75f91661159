#include "server/wire/http_core.h"

// g++ 12 takes the frames of inlined coroutines for leaked pairs of new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

// Beast is included here and in http_client.cc only: it costs a gigabyte of compiler.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "base/log.h"
#include "server/error_map.h"
#include "server/wire/http_exchange.h"
#include "server/wire/http_wire.h"
#include "server/wire/request_target.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Code = boost::system::error_code;
using Parser = http::request_parser<http::string_body>;

constexpr size_t kMaxReadAhead = 64 << 10;  // pipelined bytes kept while an answer is on its way
constexpr size_t kWritePiece = 64 << 10;    // what must leave within write_timeout
constexpr auto kLinger = std::chrono::seconds(1);

auto into(Code& code) {
  return asio::redirect_error(asio::use_awaitable, code);
}

HttpRequest to_request(const Parser& parser, const HttpWire& wire) {
  HttpRequest request;
  const auto& head = parser.get();
  request.method = head.method() == http::verb::head ? "GET" : std::string(head.method_string());
  for (const auto& field : head) request.headers.emplace_back(field.name_string(), field.value());
  request.client = wire.peer();
  return request;
}

// An answer given here, before any handler.
struct Refusal {
  int status;
  Error error;
  ErrorForm form = ErrorForm::openai;
};

// The lines of a head that `headers` are, and of `others` those that it does not name.
std::string head_lines(const HttpHeaders& headers, const HttpHeaders& others = {}) {
  std::string lines;
  for (const auto& [name, value] : headers) append_header(lines, name, value);
  for (const auto& [name, value] : others)
    if (std::ranges::none_of(headers, [&](const auto& h) { return same_name(h.first, name); }))
      append_header(lines, name, value);
  return lines;
}

Refusal refusal(Error e) {
  return {http_status(e.code), std::move(e)};
}

}  // namespace

// One socket, from accept to close. Everything runs on its lane's thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpCore> core, HttpCore::Lane& lane, tcp::socket socket)
      : core_(std::move(core)),
        lane_(lane),
        wire_(std::make_shared<HttpWire>(std::move(socket), core_->tls_now())),
        wake_(lane.context) {
    lane_.connections.insert(this);
  }
  ~HttpConnection() {
    lane_.connections.erase(this);
    core_->connection_ended();
  }

  static asio::awaitable<void> run(std::shared_ptr<HttpConnection> self, Welcome welcome);

  void close_if_idle() {
    if (idle_) cut();
  }
  void cut() {
    gone_ = true;
    wire_->close();
    wake_.cancel();
  }

 private:
  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> wait_for_bytes();
  asio::awaitable<std::optional<Refusal>> read_head(Parser& parser, HttpRequest& request);
  asio::awaitable<std::optional<Refusal>> read_body(Parser& parser, HeldBytes& held);
  asio::awaitable<bool> answer(HttpRequest&& request, HttpFraming framing);
  asio::awaitable<bool> send_all(HttpExchange::State& exchange);
  asio::awaitable<bool> send(std::string_view bytes, HttpExchange::State* exchange);
  asio::awaitable<void> refuse(Refusal refusal, HttpFraming framing);
  std::optional<Refusal> reading_failed(Code code, std::string_view what) const;
  void watch();
  void look();
  asio::awaitable<void> end_watch();

  std::shared_ptr<HttpCore> core_;
  HttpCore::Lane& lane_;
  const std::shared_ptr<HttpWire> wire_;
  boost::beast::flat_buffer buffer_;
  asio::steady_timer wake_;  // cancelled when the exchange or the watch has news
  std::string batch_;        // on its way to the socket
  HttpAdmission admission_;  // of the request being read
  bool idle_ = false;
  bool gone_ = false;                        // the client has left, or was cut off
  bool watching_ = false;                    // a read is outstanding besides the answer
  HttpExchange::State* exchange_ = nullptr;  // the one being answered
};

// Reads while the answer is being made: a close shows at once, pipelined bytes are kept.
void HttpConnection::watch() {
  if (watching_ || gone_ || buffer_.size() >= kMaxReadAhead) return;
  watching_ = true;
  wire_->async_read_some(buffer_.prepare(4096),
                         [self = shared_from_this()](Code code, size_t num_bytes) {
                           self->watching_ = false;
                           self->buffer_.commit(num_bytes);
                           if (code && code != asio::error::operation_aborted) self->gone_ = true;
                           if (!code && self->exchange_ != nullptr) self->watch();
                           self->wake_.cancel();
                         });
}

asio::awaitable<void> HttpConnection::end_watch() {
  Code ignored;
  if (watching_) wire_->cancel();
  while (watching_) {
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(into(ignored));
  }
}

// `exchange`, if any, learns what has left.
asio::awaitable<bool> HttpConnection::send(std::string_view bytes, HttpExchange::State* exchange) {
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kWritePiece);
    const bool sent = co_await wire_->write(piece, core_->options.write_timeout);
    if (!sent) co_return false;
    if (exchange != nullptr) exchange->sent(piece.size());
    bytes.remove_prefix(piece.size());
  }
  co_return true;
}

asio::awaitable<void> HttpConnection::refuse(Refusal refusal, HttpFraming framing) {
  framing.keep_alive = false;
  framing.more = head_lines(admission_.headers, error_headers(refusal.error.code));
  core_->count_status(refusal.status);
  const std::string bytes = http_answer(framing, refusal.status, "application/json",
                                        error_body(refusal.error, refusal.form), {});
  co_await send(bytes, nullptr);
}

std::optional<Refusal> HttpConnection::reading_failed(Code code, std::string_view what) const {
  const HttpOptions& o = core_->options;
  if (wire_->timed_out()) {
    return refusal(error(ErrorCode::request_timeout, "the request's {} took more than {} s", what,
                         to_seconds(what == "head" ? o.header_timeout : o.body_timeout)));
  }
  if (code == http::error::body_limit) {
    return refusal(
        error(ErrorCode::payload_too_large, "the body is larger than {} bytes", o.max_body_bytes));
  }
  if (code == http::error::header_limit || code == http::error::buffer_overflow) {
    return Refusal{431, error(ErrorCode::payload_too_large, "the head is larger than {} bytes",
                              o.max_header_bytes)};
  }
  if (code == http::error::end_of_stream || code == http::error::partial_message ||
      code.category() != http::make_error_code(http::error::bad_method).category())
    return std::nullopt;
  return refusal(error(ErrorCode::invalid_request, "this is not HTTP/1.1: {} in the {}",
                       code.message(), what));
}

// False when the connection ends here.
asio::awaitable<bool> HttpConnection::wait_for_bytes() {
  if (buffer_.size() > 0) co_return true;
  Code code;
  idle_ = true;
  wire_->arm(core_->draining ? Duration(kLinger) : core_->options.idle_timeout);
  buffer_.commit(co_await wire_->async_read_some(buffer_.prepare(8192), into(code)));
  wire_->disarm();
  idle_ = false;
  co_return !code;
}

// On a refusal, and when gone_, the connection ends.
asio::awaitable<std::optional<Refusal>> HttpConnection::read_head(Parser& parser,
                                                                  HttpRequest& request) {
  Code code;
  parser.header_limit(static_cast<uint32_t>(core_->options.max_header_bytes));
  parser.body_limit(static_cast<uint64_t>(core_->options.max_body_bytes));
  wire_->arm(core_->options.header_timeout);
  co_await http::async_read_header(*wire_, buffer_, parser, into(code));
  wire_->disarm();
  if (code) {
    gone_ = true;
    co_return reading_failed(code, "head");
  }
  request = to_request(parser, *wire_);
  auto target = parse_request_target(parser.get().target());
  if (!target) co_return refusal(std::move(target).error());
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  if (!core_->options.admit) co_return std::nullopt;
  admission_ = core_->options.admit(request);
  request.principal = admission_.principal;
  request.meter = admission_.meter;
  if (admission_.refusal) co_return refusal(*std::exchange(admission_.refusal, std::nullopt));
  co_return std::nullopt;
}

asio::awaitable<std::optional<Refusal>> HttpConnection::read_body(Parser& parser,
                                                                  HeldBytes& held) {
  if (parser.is_done()) co_return std::nullopt;
  if (same_name(parser.get()[http::field::expect], "100-continue") && buffer_.size() == 0)
    co_await send("HTTP/1.1 100 Continue\r\n\r\n", nullptr);

  parser.eager(true);
  wire_->arm(core_->options.body_timeout);
  Code code;
  while (!parser.is_done() && !code) {
    const auto num_bytes =
        static_cast<int64_t>(co_await http::async_read_some(*wire_, buffer_, parser, into(code)));
    if (auto taken = held.grow(num_bytes); !taken) {
      wire_->disarm();
      co_return refusal(std::move(taken).error());
    }
  }
  wire_->disarm();
  if (!code) co_return std::nullopt;
  gone_ = true;
  co_return reading_failed(code, "body");
}

// One request and its answer. False when the connection ends with it.
asio::awaitable<bool> HttpConnection::serve_one() {
  if (!co_await wait_for_bytes()) co_return false;
  Parser parser;
  HttpRequest request;
  admission_ = {};
  auto refused = co_await read_head(parser, request);
  const auto& head = parser.get();
  HttpFraming framing;
  framing.http_1_0 = head.version() < 11;
  framing.head_only = head.method() == http::verb::head;
  if (!refused && !gone_) {
    framing.keep_alive = head.keep_alive() && !core_->draining;
    if (core_->options.accounts) request.memory = core_->options.accounts->open(request.principal);
    request.held_body = std::make_shared<HeldBytes>(request.memory);
    refused = co_await read_body(parser, *request.held_body);
  }
  if (refused) {
    refused->form = error_form_of(request.path);
    co_await refuse(*std::move(refused), framing);
    co_return false;
  }
  if (gone_) co_return false;

  request.body = std::move(parser.get().body());
  framing.more = head_lines(admission_.headers);
  if (head.method() == http::verb::options) {
    core_->count_status(204);
    const HttpHeaders allow = {{"Allow", "GET, HEAD, POST, OPTIONS"}};
    const bool sent = co_await send(http_answer(framing, 204, "", "", allow), nullptr);
    if (!sent) co_return false;
    co_return framing.keep_alive;
  }
  co_return co_await answer(std::move(request), framing);
}

asio::awaitable<bool> HttpConnection::answer(HttpRequest&& request, HttpFraming framing) {
  auto exchange = std::make_shared<HttpExchange::State>();
  exchange->framing = framing;
  exchange->error_form = error_form_of(request.path);
  exchange->meter = std::move(admission_.meter);
  exchange->held = HeldBytes(request.memory);
  exchange->max_buffered_bytes = static_cast<size_t>(core_->options.max_buffered_bytes);
  // Only the lane's thread may hold the connection, so that it dies there.
  exchange->wake = [core = core_, &lane = lane_, weak = weak_from_this()] {
    asio::post(lane.context, [weak] {
      if (const auto connection = weak.lock()) connection->look();
    });
  };
  ++core_->num_active;
  exchange_ = exchange.get();
  try {
    core_->handler(std::move(request), std::shared_ptr<HttpExchange>(new HttpExchange(exchange)));
  } catch (const std::exception& e) {
    log::error("http_handler_failed what=\"{}\"", e.what());
  }
  const bool whole = co_await send_all(*exchange);
  exchange_ = nullptr;
  if (!whole) {
    exchange->leave();
    if (exchange->slow) ++core_->num_slow;
    cut();
  }
  co_await end_watch();
  if (batch_.capacity() > kUncountedBytes) batch_ = {};
  --core_->num_active;
  core_->count_status(whole ? exchange->status : exchange->cut ? 500 : 499);
  if (!whole || gone_ || core_->draining) co_return false;
  co_return framing.keep_alive;
}

// The exchange has news: bytes, or the wish to end.
void HttpConnection::look() {
  if (exchange_ != nullptr && exchange_->is_cut()) return cut();  // ends a write that hangs, too
  wake_.cancel();
}

// False when the answer could not be sent to its end.
asio::awaitable<bool> HttpConnection::send_all(HttpExchange::State& exchange) {
  using Next = HttpExchange::State::Next;
  for (;;) {
    const Next next = exchange.take(batch_);
    if (next == Next::done) co_return true;
    if (next == Next::cut || gone_) co_return false;
    if (next == Next::send) {
      if (!co_await send(batch_, &exchange)) co_return false;
      continue;
    }
    watch();
    Code code;
    wake_.expires_after(core_->options.ping_interval);
    co_await wake_.async_wait(into(code));
    if (!code) exchange.ping();
  }
}

asio::awaitable<void> HttpConnection::run(std::shared_ptr<HttpConnection> self, Welcome welcome) {
  // Named, since g++ 12 destroys unnamed arguments of a coroutine twice.
  const HttpFraming framing;
  const auto greeting = co_await self->wire_->greet(self->core_->options.header_timeout);
  if (greeting == HttpWire::Greeting::failed) co_return;
  if (greeting == HttpWire::Greeting::plain) {
    self->wire_->go_plain();
    Refusal plain = refusal(error(ErrorCode::invalid_request, "this port speaks HTTPS")
                                .with_fix("https:// in place of http://"));
    co_await self->refuse(std::move(plain), framing);
  } else if (welcome == Welcome::refuse) {
    Refusal full = refusal(error(ErrorCode::queue_full, "all {} connections are in use",
                                 self->core_->options.max_connections));
    full.status = 503;
    co_await self->refuse(std::move(full), framing);
  } else {
    while (co_await self->serve_one()) {
    }
  }
  if (self->wire_->is_open()) co_await self->wire_->farewell(kLinger);
}

void start_connection(std::shared_ptr<HttpCore> core, HttpCore::Lane& lane, tcp::socket socket,
                      Welcome welcome) {
  auto connection = std::make_shared<HttpConnection>(std::move(core), lane, std::move(socket));
  asio::co_spawn(lane.context, HttpConnection::run(std::move(connection), welcome), asio::detached);
}

void close_if_idle(HttpConnection& connection) {
  connection.close_if_idle();
}

void cut_off(HttpConnection& connection) {
  connection.cut();
}

}  // namespace hocket
