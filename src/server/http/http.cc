#include "server/http/http.h"

#include "server/http/http_core.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>

#include "base/check.h"
#include "base/log.h"
#include "server/http/http_exchange.h"
#include "server/http/into_code.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr double kWarnDaysBeforeExpiry = 14;

// Loads the certificate, and warns if clients will soon refuse it.
Result<TlsIdentity> load_tls(const TlsFiles& files) {
  HOCKET_TRY(TlsIdentity identity, load_tls_identity(files));
  if (identity.remaining_days < 0)
    log::warning("the certificate {} has expired; renew it and send SIGHUP", files.certificate);
  else if (identity.remaining_days < kWarnDaysBeforeExpiry)
    log::warning("the certificate {} expires in {:.1f} days; renew it and send SIGHUP",
                 files.certificate, identity.remaining_days);
  return identity;
}

// Posts the connection to its loop's thread, which gives it a place and closes another one if
// needed.
void post_connection(const std::shared_ptr<HttpCore>& core, HttpCore::Loop& loop,
                     tcp::socket socket) {
  core->counts.add(&HttpCounters::num_accepted_total);
  ++core->num_connections;
  ConnectionCount count(core.get());
  // The limit counts spare connections twice, since connections that were just closed may not have
  // ended yet.
  const auto max_connections = core->options.max_connections + 2 * kMaxSpare * core->loops.size();
  if (core->num_connections > static_cast<int64_t>(max_connections)) {
    core->counts.add(&HttpCounters::num_refused_total);
    return;
  }
  Code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  asio::post(loop.context,
             [core, &loop, s = std::move(socket), count = std::move(count)]() mutable {
               start_connection(core, loop, std::move(s), std::move(count));
             });
}

// Returns false if the server accepts no more connections.
asio::awaitable<bool> accept_one(std::shared_ptr<HttpCore> core, HttpCore::Loop& loop) {
  tcp::socket socket(loop.context);
  Code code;
  co_await core->acceptor->async_accept(socket, into(code));
  if (code == asio::error::operation_aborted) co_return false;
  if (!code) {
    post_connection(core, loop, std::move(socket));
    co_return true;
  }
  // Most likely there are no file descriptors left; some will be closed soon.
  if (core->may_log_accept_failed(RealClock().now()))
    log::warning("http: a connection could not be accepted: {}; the next try is in 50 ms",
                 code.message());
  asio::steady_timer pause(co_await asio::this_coro::executor, std::chrono::milliseconds(50));
  co_await pause.async_wait(into(code));
  co_return true;
}

asio::awaitable<void> accept_loop(std::shared_ptr<HttpCore> core) {
  for (size_t turn = 0; core->acceptor->is_open(); ++turn) {
    try {
      const bool is_open = co_await accept_one(core, *core->loops[turn % core->loops.size()]);
      if (!is_open) break;
    } catch (const std::exception& e) {
      log_failure("http_accept_failed", e);
    }
  }
}

Result<tcp::endpoint> resolve(asio::io_context& context, const HttpOptions& options) {
  if (options.port < 0 || options.port > 65535)
    return fail(error(ErrorCode::bad_value, "port {} is not in 0 to 65535", options.port)
                    .with_param("port"));
  Code code;
  const auto found =
      tcp::resolver(context).resolve(options.host, std::to_string(options.port),
                                     tcp::resolver::passive | tcp::resolver::numeric_service, code);
  if (code || found.empty()) {
    return fail(
        error(ErrorCode::bad_value, "the host '{}' is unknown: {}", options.host, code.message())
            .with_fix("--host 127.0.0.1, or 0.0.0.0 for every interface")
            .with_param("host"));
  }
  for (const auto& entry : found)
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  return found.begin()->endpoint();
}

Result<tcp::acceptor> listen(asio::io_context& context, const tcp::endpoint& endpoint) {
  tcp::acceptor acceptor(context);
  Code code;
  acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(tcp::acceptor::reuse_address(true), code);
  if (!code) acceptor.bind(endpoint, code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (!code) return acceptor;
  if (code == asio::error::address_in_use) {
    return fail(error(ErrorCode::port_in_use, "port {} of {} is in use", endpoint.port(),
                      endpoint.address().to_string())
                    .with_fix(fmt::format("--port {}, or stop the program that holds it",
                                          endpoint.port() == 65535 ? 30000 : endpoint.port() + 1))
                    .with_param("port"));
  }
  return fail(ErrorCode::io, "cannot listen on {} port {}: {}", endpoint.address().to_string(),
              endpoint.port(), code.message());
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::create(HttpOptions options, HttpHandler handler) {
  HOCKET_CHECK(options.num_threads > 0);
  HOCKET_CHECK((options.error_format_of != nullptr));
  auto core = std::make_shared<HttpCore>();
  core->options = std::move(options);
  core->handler = std::move(handler);
  for (int i = 0; i < core->options.num_threads; ++i) {
    core->loops.push_back(std::make_unique<HttpCore::Loop>());
    core->loops.back()->work.emplace(core->loops.back()->context.get_executor());
  }
  asio::io_context& first = core->loops.front()->context;
  if (!core->options.tls.empty()) {
    HOCKET_TRY(TlsIdentity identity, load_tls(core->options.tls));
    const MutexLock lock(core->mutex);
    core->tls = std::move(identity.context);
  }
  if (core->options.cluster_tls != nullptr) {
    const MutexLock lock(core->mutex);
    core->tls = asio_context(*core->options.cluster_tls);
  }
  HOCKET_TRY(const tcp::endpoint endpoint, resolve(first, core->options));
  HOCKET_TRY(core->acceptor, listen(first, endpoint));
  core->port = core->acceptor->local_endpoint().port();
  asio::co_spawn(first, accept_loop(core), asio::detached);
  for (size_t i = 0; i < core->loops.size(); ++i) {
    HttpCore::Loop& loop = *core->loops[i];
    loop.thread = Thread({.name = fmt::format("{}{}", core->options.thread_name, i)},
                         [&loop] { run_whatever_fails([&loop] { loop.context.run(); }); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::HttpServer(std::shared_ptr<HttpCore> core) : core_(std::move(core)) {}

HttpServer::~HttpServer() {
  stop(Duration::zero());
}

int HttpServer::port() const {
  return core_->port;
}

HttpCounts HttpServer::counts() const {
  HttpCounts counts;
  static_cast<HttpCounters&>(counts) = core_->counts.read(kHttpCounters);
  counts.num_connections = core_->num_connections;
  counts.num_active = core_->num_active;
  if (const auto& memory_budget = core_->options.memory_budget) {
    counts.memory_bytes = memory_budget->held_bytes();
    counts.peak_memory_bytes = memory_budget->peak_held_bytes();
    counts.memory_limit_bytes = memory_budget->limits().total_bytes;
    counts.num_memory_refused_total = memory_budget->num_refused();
  }
  return counts;
}

Result<void> HttpServer::reload_tls() {
  if (core_->options.tls.empty()) return {};
  HOCKET_TRY(TlsIdentity identity, load_tls(core_->options.tls));
  MutexLock lock(core_->mutex);
  core_->tls = std::move(identity.context);
  return {};
}

void HttpServer::begin_drain() {
  if (core_->draining.exchange(true)) return;
  for (auto& loop : core_->loops) {
    asio::post(loop->context, [&loop = *loop] {
      for (HttpConnection* connection : loop.connections) close_if_idle(*connection);
    });
  }
}

void HttpServer::stop_accepting() {
  begin_drain();
  if (core_->closed.exchange(true)) return;
  std::promise<void> closed;
  asio::post(core_->loops.front()->context, [&] {
    Code ignored;
    core_->acceptor->close(ignored);
    closed.set_value();
  });
  closed.get_future().wait();
  for (auto& loop : core_->loops) {  // connections that were accepted while it drained
    asio::post(loop->context, [&loop = *loop] {
      for (HttpConnection* connection : loop.connections) close_if_idle(*connection);
    });
  }
}

bool HttpServer::stop(Duration patience) {
  stop_accepting();
  MutexLock lock(core_->mutex);
  core_->fewer.wait_for(lock, patience, [&] { return core_->num_connections == 0; });
  if (std::exchange(core_->stopped, true)) return true;
  lock.unlock();
  const bool none_cut = core_->num_active == 0;
  for (auto& loop : core_->loops) {
    asio::post(loop->context, [&loop = *loop] {
      for (HttpConnection* connection : loop.connections) cut_off(*connection);
      loop.work.reset();
    });
  }
  for (auto& loop : core_->loops) loop->thread.join();
  core_->handler = nullptr;
  core_->options.admit = nullptr;
  core_->options.on_status = nullptr;
  return none_cut;
}

}  // namespace hocket
