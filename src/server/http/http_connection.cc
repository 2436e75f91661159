#include "server/http/http_core.h"

// g++ 12 takes the frames of inlined coroutines for mismatched pairs of new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <optional>

#include "base/log.h"
#include "core/queue_limits.h"
#include "server/http/error_map.h"
#include "server/http/http_exchange.h"
#include "server/http/http_reader.h"
#include "server/http/http_socket.h"
#include "server/http/into_code.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t kWritePiece = 64 << 10;            // must be sent within write_timeout
constexpr std::chrono::seconds kMaxBatchTime(300);  // beyond write_timeout: a batch holds memory
constexpr auto kLinger = std::chrono::seconds(1);
// A connection that has waited for less keeps its place: its request may be on its way.
constexpr auto kMinWait = std::chrono::milliseconds(100);
constexpr uint64_t kBodyProgress = 64 << 10;  // a body that brought more keeps its place too
constexpr QueueLimit<int64_t> kConnectionLimit{"all {} connections are in use",
                                               "try again later, or raise --max-connections"};
constexpr Duration kSparePatience = std::chrono::seconds(1);  // for the head of a probe

// Returns the lines of a head: all of `headers`, and those of `others` whose names `headers` lacks.
std::string head_lines(const HttpHeaders& headers, const HttpHeaders& others = {}) {
  std::string lines;
  for (const auto& [name, value] : headers) append_header(lines, name, value);
  for (const auto& [name, value] : others)
    if (std::ranges::none_of(headers, [&](const auto& h) { return same_name(h.first, name); }))
      append_header(lines, name, value);
  return lines;
}

}  // namespace

// One socket, from accept to close. All functions run on the loop's thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(std::shared_ptr<HttpCore> core, HttpCore::Loop& loop, tcp::socket socket,
                 ConnectionCount count, std::list<HttpConnection*>& line)
      : core_(std::move(core)),
        loop_(loop),
        count_(std::move(count)),
        spare_(&line == &loop.spare),
        socket_(std::make_shared<HttpSocket>(std::move(socket), core_->tls_now())),
        reader_(socket_, core_->options),
        wake_(loop.context) {
    loop_.connections.insert(this);
    join_line(line);
  }
  ~HttpConnection() {
    leave_line();
    loop_.connections.erase(this);
  }

  static asio::awaitable<void> run(std::shared_ptr<HttpConnection> self);

  bool waits_long() const { return RealClock().now() - waits_since_ >= kMinWait; }
  // Returns the connection that has waited longest, null if that is less than kMinWait. Moves each
  // one whose body grows to the end.
  static HttpConnection* longest_waiting(HttpCore::Loop& loop) {
    for (size_t i = loop.waiting.size(); i > 0; --i) {
      HttpConnection* const first = loop.waiting.front();
      if (first->reader_.num_body_bytes() - first->num_read_before_ < kBodyProgress)
        return first->waits_long() ? first : nullptr;
      first->join_line(loop.waiting);
    }
    return nullptr;
  }
  void close_if_idle() {
    if (idle_) cut();
  }
  void cut() {
    leave_line();
    gone_ = true;
    socket_->close();
    wake_.cancel();
  }

 private:
  // Puts this at the end of a line, whose first connection may be closed for a new one. A spare
  // connection stays in `spare`.
  void join_line(std::list<HttpConnection*>& line) {
    leave_line();
    line.splice(line.end(), node_);
    line_ = &line;
    waits_since_ = RealClock().now();
    num_read_before_ = reader_.num_body_bytes();
  }
  void leave_line() {
    if (line_ != nullptr) node_.splice(node_.end(), *line_, in_line_);
    line_ = nullptr;
  }
  void begin_wait() {
    if (!spare_ && socket_->is_open()) join_line(loop_.waiting);
  }
  void end_wait() {
    if (!spare_) leave_line();
  }
  Duration patience(Duration usual) const {
    return spare_ ? std::min<Duration>(usual, kSparePatience) : usual;
  }
  asio::awaitable<void> serve();
  asio::awaitable<bool> serve_one();
  asio::awaitable<std::optional<Refusal>> read(HttpRequest& request, HttpFraming& framing);
  std::optional<Refusal> admit(HttpRequest& request);
  asio::awaitable<bool> answer(HttpRequest&& request, HttpFraming framing);
  asio::awaitable<bool> send_all(HttpExchange::State& exchange);
  asio::awaitable<bool> send(std::string_view bytes, HttpExchange::State* exchange);
  asio::awaitable<void> refuse(Refusal refusal, HttpFraming framing, const ErrorFormat& format);
  void watch();
  void half_closed();
  void check_exchange();
  asio::awaitable<void> end_watch();

  std::shared_ptr<HttpCore> core_;
  HttpCore::Loop& loop_;
  const ConnectionCount count_;
  const bool spare_;
  std::list<HttpConnection*> node_{this};  // holds this connection while it is in no line
  const std::list<HttpConnection*>::iterator in_line_ = node_.begin();
  std::list<HttpConnection*>* line_ = nullptr;
  TimePoint waits_since_{};
  uint64_t num_read_before_ = 0;  // body bytes that had been read at waits_since_
  const std::shared_ptr<HttpSocket> socket_;
  HttpReader reader_;
  asio::steady_timer wake_;  // cancelled when the exchange or the watch changes
  std::string batch_;        // bytes that are being sent
  HttpAdmission admission_;  // for the request being read
  bool idle_ = false;
  bool gone_ = false;                        // true: the client has left, or was cut off
  bool half_closed_ = false;                 // true: the client sends no more, but may read
  bool watching_ = false;                    // true: a read runs beside the answer
  HttpExchange::State* exchange_ = nullptr;  // the one that is answered
};

// Reads while the answer is made, to notice a closed connection and to keep pipelined bytes.
void HttpConnection::watch() {
  if (watching_ || gone_) return;
  if (half_closed_) {
    socket_->async_wait_reset([self = shared_from_this()](Code code) {
      self->watching_ = false;
      if (!code) self->gone_ = true;
      self->wake_.cancel();
    });
    watching_ = true;
    return;
  }
  const asio::mutable_buffer room = reader_.room();
  if (room.size() == 0) return;
  socket_->async_read_some(room, [self = shared_from_this()](Code code, size_t num_bytes) {
    self->watching_ = false;
    self->reader_.add(num_bytes);
    if (code == asio::error::eof)
      self->half_closed();
    else if (code && code != asio::error::operation_aborted)
      self->gone_ = true;
    self->wake_.cancel();
    if (!code && self->exchange_ != nullptr) self->watch();
  });
  watching_ = true;
}

void HttpConnection::half_closed() {
  half_closed_ = true;
  socket_->note_eof();
  if (exchange_ != nullptr && !exchange_->ask()) gone_ = true;
}

asio::awaitable<void> HttpConnection::end_watch() {
  Code ignored;
  if (watching_) socket_->cancel();
  while (watching_) {
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(into(ignored));
  }
}

// Sends, and reports each piece to `exchange` (may be null). Returns false if the client is too
// slow.
asio::awaitable<bool> HttpConnection::send(std::string_view bytes, HttpExchange::State* exchange) {
  const HttpOptions& options = core_->options;
  const TimePoint end =
      RealClock().now() + options.write_timeout +
      std::min(kMaxBatchTime,
               std::chrono::seconds(static_cast<int64_t>(bytes.size()) / options.min_bytes_per_s));
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kWritePiece);
    const Duration limit = std::min<Duration>(options.write_timeout, end - RealClock().now());
    if (limit <= Duration{}) co_return false;
    const bool sent = co_await socket_->write(piece, limit);
    if (!sent) co_return false;
    if (exchange != nullptr) exchange->sent(piece.size());
    bytes.remove_prefix(piece.size());
  }
  co_return true;
}

asio::awaitable<void> HttpConnection::refuse(Refusal refusal, HttpFraming framing,
                                             const ErrorFormat& format) {
  framing.keep_alive = false;
  framing.more = head_lines(admission_.headers, error_headers(refusal.error.code));
  core_->count_status(refusal.status);
  const std::string bytes =
      http_answer(framing, refusal.status, kJsonType, format.body(refusal.error), {});
  co_await send(bytes, nullptr);
}

std::optional<Refusal> HttpConnection::admit(HttpRequest& request) {
  const HttpOptions& options = core_->options;
  if (options.admit) {
    admission_ = options.admit(request);
    request.sender = std::move(admission_.sender);
    if (admission_.refusal) return refusal(*std::exchange(admission_.refusal, std::nullopt));
  }
  if (options.memory_budget) request.memory = options.memory_budget->open(admission_.memory_owner);
  request.held_body = std::make_shared<HeldBytes>(request.memory);
  return std::nullopt;
}

asio::awaitable<std::optional<Refusal>> HttpConnection::read(HttpRequest& request,
                                                             HttpFraming& framing) {
  const HttpOptions& options = core_->options;
  auto refused = co_await reader_.read_head(request, framing, patience(options.header_timeout));
  if (refused) co_return refused;
  framing.keep_alive = framing.keep_alive && !core_->draining && !spare_;
  if (spare_ && std::ranges::find(options.probes, request.path) == options.probes.end()) {
    core_->counts.add(&HttpCounters::num_refused_total);
    Refusal full = refusal(queue_full(kConnectionLimit, options.max_connections));
    full.status = 503;
    co_return full;
  }
  refused = admit(request);
  if (refused) co_return refused;
  co_return co_await reader_.read_body(request);
}

// Serves one request and its answer. Returns false if the connection ends with it.
asio::awaitable<bool> HttpConnection::serve_one() {
  idle_ = !reader_.has_bytes();
  begin_wait();
  const Duration limit = core_->draining ? Duration(kLinger) : core_->options.idle_timeout;
  const bool begun = co_await reader_.wait(patience(limit));
  idle_ = false;
  if (!begun) co_return false;
  HttpRequest request;
  HttpFraming framing;
  admission_ = {};
  auto refused = co_await read(request, framing);
  if (refused && refused->status == 0) co_return false;
  if (refused) {
    co_await refuse(*std::move(refused), framing, core_->options.error_format_of(request.path));
    co_return false;
  }
  framing.more = head_lines(admission_.headers);
  if (request.method == "OPTIONS") {
    core_->count_status(204);
    const HttpHeaders allow = {{"Allow", "GET, HEAD, POST, OPTIONS"}};
    const bool sent = co_await send(http_answer(framing, 204, "", "", allow), nullptr);
    co_return sent&& framing.keep_alive;
  }
  co_return co_await answer(std::move(request), framing);
}

asio::awaitable<bool> HttpConnection::answer(HttpRequest&& request, HttpFraming framing) {
  auto exchange = std::make_shared<HttpExchange::State>();
  exchange->framing = framing;
  exchange->error_format = &core_->options.error_format_of(request.path);
  exchange->begin(std::move(admission_.on_end), HeldBytes(request.memory));
  exchange->max_buffered_bytes = static_cast<size_t>(core_->options.max_buffered_bytes);
  // Only the loop's thread may hold the connection, so that the connection is destroyed there.
  exchange->wake = [core = core_, &loop = loop_, weak = weak_from_this()] {
    asio::post(loop.context, [weak] {
      if (const auto connection = weak.lock()) connection->check_exchange();
    });
  };
  std::shared_ptr<HttpExchange> holder(new HttpExchange(exchange));
  end_wait();
  const ActiveRequest active(core_->num_active);
  exchange_ = exchange.get();
  if (half_closed_) half_closed();
  try {
    core_->handler(std::move(request), std::move(holder));
  } catch (const std::exception& e) {
    log_failure("http_handler_failed", e);
  }
  bool whole = false;
  try {
    whole = co_await send_all(*exchange);
  } catch (const std::exception& e) {
    log_failure("http_answer_failed", e);
  }
  exchange_ = nullptr;
  if (!whole) {
    exchange->leave();
    if (exchange->is_slow()) core_->counts.add(&HttpCounters::num_slow_total);
    cut();
  }
  co_await end_watch();
  if (batch_.capacity() > kUncountedBytes) batch_ = {};
  core_->count_status(exchange->end_status(whole));
  if (!whole || gone_ || core_->draining) co_return false;
  co_return framing.keep_alive;
}

// Called when the exchange has bytes to send, or must end.
void HttpConnection::check_exchange() {
  if (exchange_ != nullptr && exchange_->is_cut()) return cut();  // ends a write that hangs, too
  wake_.cancel();
}

// Returns false if the answer could not be sent to its end.
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

asio::awaitable<void> HttpConnection::serve() {
  // Has a name, since g++ 12 destroys unnamed arguments of a coroutine twice.
  const HttpFraming framing;
  const auto handshake = co_await socket_->handshake(patience(core_->options.header_timeout));
  if (handshake == HttpSocket::Handshake::failed) co_return;
  if (handshake == HttpSocket::Handshake::plain) {
    socket_->drop_tls();
    Refusal plain = refusal(error(ErrorCode::invalid_request, "this port speaks HTTPS")
                                .with_fix("https:// in place of http://"));
    co_await refuse(std::move(plain), framing, core_->options.error_format_of(""));
  } else {
    while (co_await serve_one()) {
    }
  }
  begin_wait();
  if (socket_->is_open()) co_await socket_->linger(kLinger);
}

asio::awaitable<void> HttpConnection::run(std::shared_ptr<HttpConnection> self) {
  try {
    co_await self->serve();
  } catch (const std::exception& e) {  // most likely out of memory: only this connection ends
    log_failure("http_connection_failed", e);
  }
  self->cut();
}

void start_connection(std::shared_ptr<HttpCore> core, HttpCore::Loop& loop, tcp::socket socket,
                      ConnectionCount count) {
  const bool full = core->num_connections > core->options.max_connections;
  HttpConnection* const leaves = full ? HttpConnection::longest_waiting(loop) : nullptr;
  const bool spare = full && leaves == nullptr;
  if (leaves != nullptr) {
    core->counts.add(&HttpCounters::num_dropped_total);
    leaves->cut();
  }
  if (spare && loop.spare.size() >= kMaxSpare) loop.spare.front()->cut();
  auto connection =
      std::make_shared<HttpConnection>(std::move(core), loop, std::move(socket), std::move(count),
                                       spare ? loop.spare : loop.waiting);
  asio::co_spawn(loop.context, HttpConnection::run(std::move(connection)), asio::detached);
}

void close_if_idle(HttpConnection& connection) {
  connection.close_if_idle();
}

void cut_off(HttpConnection& connection) {
  connection.cut();
}

}  // namespace hocket
