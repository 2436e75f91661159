#include "server/http/http_client.h"

// g++ 12 takes the frames of inlined coroutines for mismatched pairs of new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "base/thread.h"
#include "server/http/http_call.h"
#include "server/http/http_exchange.h"
#include "server/http/into_code.h"
#include "server/http/request_head.h"
#include "server/http/tls_identity.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Code = boost::system::error_code;
using Parser = http::response_parser<http::buffer_body>;
using ReadBuffer = boost::beast::flat_buffer;

constexpr size_t kPiece = 64 << 10;
constexpr size_t kMaxHead = 16 << 10;
constexpr size_t kReadHead = 4 << 10;

tcp::endpoint endpoint_of(const SocketAddress& address) {
  tcp::endpoint endpoint;
  endpoint.resize(address.length);
  std::memcpy(endpoint.data(), &address.storage, address.length);
  return endpoint;
}

using Call = HttpClientCall;
using CallPtr = std::shared_ptr<Call>;

std::string head_of(const HttpCall& call) {
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n",
                                 call.method, call.target, call.to.text(), call.body.size());
  for (const auto& [name, value] : call.headers) append_header(head, name, value);
  return head += "\r\n";
}

}  // namespace

struct HttpClient::State {
  struct IdleConnection {
    std::shared_ptr<HttpSocket> socket;
    TimePoint since;
  };

  asio::awaitable<bool> connect(CallPtr call);
  asio::awaitable<bool> send(CallPtr call);
  asio::awaitable<bool> receive_head(CallPtr call, ReadBuffer& buffer, Parser& parser);
  asio::awaitable<HttpEnd> receive(CallPtr call, bool& stale);
  asio::awaitable<HttpEnd> attempt(CallPtr call);
  asio::awaitable<void> run(CallPtr call);
  void finish(Call& call, HttpEnd end);
  bool take_idle(Call& call);
  void keep(Call& call);
  void tick();
  void end_all();

  Options options;
  asio::io_context context{1};
  std::shared_ptr<asio::ssl::context> tls;  // null: without TLS
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  asio::steady_timer ticker{context};
  std::unordered_map<uint64_t, CallPtr> calls;
  std::map<tcp::endpoint, std::deque<IdleConnection>> idle;  // by address, the oldest first
  bool ending = false;

  Mutex mutex;
  bool stopped HOCKET_GUARDED_BY(mutex) = false;
  uint64_t last_id HOCKET_GUARDED_BY(mutex) = 0;
  int64_t body_bytes HOCKET_GUARDED_BY(mutex) = 0;
  std::atomic<size_t> num_calls{0};
  Thread thread;
};

asio::awaitable<bool> HttpClient::State::connect(CallPtr call) {
  Code code;
  const tcp::endpoint endpoint = endpoint_of(call->what.to);
  call->tcp_socket = tcp::socket(context);
  const Duration limit = call->what.connect_timeout > Duration::zero() ? call->what.connect_timeout
                                                                       : options.connect_timeout;
  arm(call, limit, "the connection");
  co_await call->tcp_socket.async_connect(endpoint, into(code));
  if (!code) {
    Code ignored;
    call->tcp_socket.set_option(tcp::no_delay(true), ignored);
    call->socket = std::make_shared<HttpSocket>(std::move(call->tcp_socket), tls);
    code = co_await call->socket->connect_tls();
  }
  disarm(call);
  if (!code) co_return true;
  call->why = call->timed_out.empty() ? code.message()
                                      : fmt::format("no answer within {:g} s", to_seconds(limit));
  co_return false;
}

asio::awaitable<bool> HttpClient::State::send(CallPtr call) {
  const std::string head = head_of(call->what);
  Code code;
  for (std::string_view rest : {std::string_view(head), std::string_view(call->what.body)}) {
    while (!rest.empty() && !code) {
      const std::string_view piece = rest.substr(0, kPiece);
      arm(call, options.write_timeout, "sending the request");
      co_await asio::async_write(*call->socket, asio::buffer(piece), into(code));
      disarm(call);
      rest.remove_prefix(piece.size());
    }
  }
  if (code) call->why = code.message();
  co_return !code;
}

// Reads the answer's head. Returns false, with call->why set, if it is incomplete or not HTTP.
asio::awaitable<bool> HttpClient::State::receive_head(CallPtr call, ReadBuffer& buffer,
                                                      Parser& parser) {
  HeadScan scan;
  Code code;
  for (;;) {
    const std::string_view bytes(static_cast<const char*>(buffer.data().data()), buffer.size());
    const auto length = scan.find_end(bytes);
    if (!length || (*length == 0 && bytes.size() >= kMaxHead)) {
      call->why = length ? fmt::format("its head is larger than {} bytes", kMaxHead)
                         : length.error().message;
      co_return false;
    }
    if (*length > 0) {
      const size_t num_read = parser.put(asio::buffer(bytes.substr(0, *length)), code);
      if (!code) buffer.consume(num_read);
      if (code) call->why = code.message();
      co_return !code;
    }
    buffer.commit(co_await call->socket->async_read_some(buffer.prepare(kReadHead), into(code)));
    if (!code) continue;
    call->why = code.message();
    co_return false;
  }
}

// Receives the answer. stale: the connection had ended before the first byte.
asio::awaitable<HttpEnd> HttpClient::State::receive(CallPtr call, bool& stale) {
  ReadBuffer buffer(kPiece);  // a part that is too long (a chunk's extension) overflows it
  Parser parser;
  parser.header_limit(kMaxHead);
  parser.body_limit(boost::none);
  const bool begun = co_await receive_head(call, buffer, parser);
  if (!begun) {
    stale = buffer.size() == 0 && call->timed_out.empty();
    co_return HttpEnd::broken;
  }
  Code code;
  HttpHeaders headers;
  for (const auto& field : parser.get()) headers.emplace_back(field.name_string(), field.value());
  if (call->cancelled ||
      !call->sink->head(static_cast<int>(parser.get().result_int()), std::move(headers)))
    co_return HttpEnd::cancelled;
  // The parser is not eager: an eager parser keeps a chunk until it has seen the size of the next
  // one.
  std::string piece(kPiece, '\0');
  while (!parser.is_done()) {
    auto& body = parser.get().body();
    body.data = piece.data();
    body.size = piece.size();
    body.more = true;
    co_await http::async_read_some(*call->socket, buffer, parser, into(code));
    if (code == http::error::need_buffer) code = {};
    const size_t num_bytes = piece.size() - parser.get().body().size;
    if (call->cancelled) co_return HttpEnd::cancelled;
    if (num_bytes > 0 && !call->sink->body(std::string_view(piece).substr(0, num_bytes)))
      co_return HttpEnd::cancelled;
    if (code) {
      call->why = code.message();
      co_return HttpEnd::broken;
    }
  }
  if (parser.keep_alive() && buffer.size() == 0) keep(*call);
  co_return HttpEnd::whole;
}

asio::awaitable<HttpEnd> HttpClient::State::attempt(CallPtr call) {
  const bool old = take_idle(*call);
  for (bool again = false;; again = true) {
    if (!old || again) {
      const bool connected = co_await connect(call);
      if (!connected) co_return again ? HttpEnd::unanswered : HttpEnd::not_connected;
    }
    bool stale = false;
    HttpEnd end = HttpEnd::broken;
    const bool sent = co_await send(call);
    // A peer that refuses a long body may have answered before it closed the connection.
    if (sent || !call->cancelled) end = co_await receive(call, stale);
    if (end == HttpEnd::broken && stale && old && !again && !call->cancelled) {
      call->why.clear();
      continue;
    }
    co_return end;
  }
}

asio::awaitable<void> HttpClient::State::run(CallPtr call) {
  if (call->what.max_time > Duration{}) {
    call->whole_deadline.expires_after(call->what.max_time);
    call->whole_deadline.async_wait([call](Code code) {
      if (code) return;
      call->timed_out = "the answer";
      call->cut();
    });
  }
  HttpEnd end = HttpEnd::cancelled;
  try {  // an exception ends this call only
    if (!call->cancelled) end = co_await attempt(call);
  } catch (const std::exception& e) {
    end = HttpEnd::broken;
    call->why = e.what();
  }
  if (call->cancelled) end = HttpEnd::cancelled;
  if (end == HttpEnd::broken && !call->timed_out.empty())
    call->why = fmt::format("{} took too long", call->timed_out);
  finish(*call, end);
}

void HttpClient::State::finish(Call& call, HttpEnd end) {
  call.whole_deadline.cancel();
  call.cut();
  try {
    call.sink->end(end, call.why);
  } catch (const std::exception& e) {
    log_failure("http_call_failed", e);
  }
  {
    MutexLock lock(mutex);
    body_bytes -= static_cast<int64_t>(call.what.body.size());
    if (call.what.is_counted) --num_calls;
  }
  calls.erase(call.id);
}

bool HttpClient::State::take_idle(Call& call) {
  const auto found = idle.find(endpoint_of(call.what.to));
  if (found == idle.end()) return false;
  call.socket = std::move(found->second.back().socket);
  found->second.pop_back();
  if (found->second.empty()) idle.erase(found);
  return true;
}

void HttpClient::State::keep(Call& call) {
  if (ending) return;
  std::deque<IdleConnection>& line = idle[endpoint_of(call.what.to)];
  if (line.size() >= options.max_idle) line.pop_front();
  line.push_back({.socket = std::move(call.socket), .since = RealClock().now()});
}

void HttpClient::State::tick() {
  if (ending) return;
  const TimePoint oldest = RealClock().now() - options.max_idle_time;
  for (auto& [address, line] : idle)
    while (!line.empty() && line.front().since < oldest) line.pop_front();
  std::erase_if(idle, [](const auto& line) { return line.second.empty(); });
  ticker.expires_after(options.tick);
  ticker.async_wait([this](Code code) {
    if (!code) tick();
  });
  if (options.on_tick) options.on_tick();
}

void HttpClient::State::end_all() {
  ending = true;
  for (const auto& [id, call] : calls) {
    call->cancelled = true;
    call->cut();
  }
  idle.clear();
  ticker.cancel();
  work.reset();
}

HttpClient::HttpClient(Options options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = std::move(options);
  if (s.options.tls != nullptr) s.tls = asio_context(*s.options.tls);
  s.work.emplace(s.context.get_executor());
  asio::post(s.context, [&s] { s.tick(); });
  s.thread = Thread({.name = s.options.thread_name},
                    [&s] { run_whatever_fails([&s] { s.context.run(); }); });
}

HttpClient::~HttpClient() {
  stop();
}

uint64_t HttpClient::start(HttpCall call, std::shared_ptr<HttpSink> sink) {
  State& s = *state_;
  const auto num_bytes = static_cast<int64_t>(call.body.size());
  MutexLock lock(s.mutex);
  if (s.stopped || (call.is_counted && s.num_calls >= s.options.max_calls) ||
      s.body_bytes + num_bytes > s.options.max_body_bytes)
    return 0;
  const uint64_t id = ++s.last_id;
  const bool is_counted = call.is_counted;
  auto made = std::make_shared<Call>(id, std::move(call), std::move(sink), s.context);
  asio::post(s.context, [&s, made = std::move(made)] {
    try {
      s.calls.emplace(made->id, made);
      made->cancelled = s.ending;
      asio::co_spawn(s.context, s.run(made), asio::detached);
    } catch (const std::exception& e) {
      made->why = e.what();
      s.finish(*made, HttpEnd::broken);
    }
  });
  s.body_bytes += num_bytes;
  if (is_counted) ++s.num_calls;
  return id;
}

void HttpClient::cancel(uint64_t call) {
  asio::post(state_->context, [&s = *state_, call] {
    const auto found = s.calls.find(call);
    if (found == s.calls.end()) return;
    found->second->cancelled = true;
    found->second->cut();
  });
}

size_t HttpClient::num_calls() const {
  return state_->num_calls;
}

void HttpClient::stop() {
  {
    MutexLock lock(state_->mutex);
    if (std::exchange(state_->stopped, true)) return;
    asio::post(state_->context, [&s = *state_] { s.end_all(); });
  }
  state_->thread.join();
}

}  // namespace hocket
