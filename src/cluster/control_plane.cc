#include "cluster/control_plane.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/thread.h"
#include "cluster/coordinator.h"
#include "cluster/elected_role.h"
#include "cluster/follower.h"
#include "cluster/link_monitor.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

constexpr size_t kMaxCommands = 1024;
constexpr Duration kStorePatience = std::chrono::seconds(5);  // added to a call's own time limit

}  // namespace

struct ControlPlane::State {
  ClusterOptions options;
  Identity self;
  Poller poller;
  Shared shared;
  Fd wake{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  Mailbox<ControlCommand> commands{kMaxCommands};
  LinkMonitor links;
  std::unique_ptr<ControlRole> role;
  uint16_t port = 0;
  std::atomic<bool> stopping{false};
  Thread thread;

  State(const ClusterOptions& given, Identity identity)
      : options(given), self(std::move(identity)), shared(self.rank), links(options, self) {
    HOCKET_CHECK(static_cast<bool>(wake));
    poller.add(wake, kWakeToken, EPOLLIN);
    self.address = links.port();
    if (links.socket()) poller.add(links.socket(), kLinkToken, EPOLLIN);
  }

  void notify() const {
    const uint64_t one = 1;
    // If the counter is full, the write fails, but the thread is being woken already.
    (void)!write(wake.get(), &one, sizeof one);
  }

  void run() {
    while (!stopping.load(std::memory_order_acquire)) {
      const auto events = poller.wait(std::min(role->next_deadline(), links.next_deadline()));
      const TimePoint now = RealClock().now();
      for (const epoll_event& event : events) {
        if (event.data.u64 == kLinkToken) {
          links.receive(now);
          continue;
        }
        if (event.data.u64 != kWakeToken) {
          role->on_event(event.data.u64, event.events, now);
          continue;
        }
        uint64_t count = 0;
        (void)!read(wake.get(), &count, sizeof count);
      }
      while (auto command = commands.pop()) role->on_command(*std::move(command), now);
      // One wait returns all sockets that are ready (Poller::kMaxEvents), so the heartbeats that
      // came during a pause of this process are read before a rank is judged.
      role->on_tick(now);
      watch_links(now);
    }
    commands.close();
    while (auto command = commands.pop()) role->on_command(*std::move(command), RealClock().now());
    role->leave(error(ErrorCode::shutting_down, "it shuts down"));
  }

  // Reports a rank whose datagrams no longer arrive here, if both are in one epoch.
  void watch_links(TimePoint now) {
    const auto silent = links.tick(shared.view(), now);
    shared.own_heartbeat.set_unreachable(links.unreachable(now));
    if (!silent) return;
    const uint32_t epoch = shared.leave_epoch();
    if (epoch == 0) return;
    role->on_command(
        ReportMessage{.epoch = epoch,
                      .rank = silent->rank,
                      .why = fmt::format("the link between them carries nothing for {:.1f} s",
                                         to_seconds(silent->silence))},
        now);
  }

  void stop() {
    stopping.store(true, std::memory_order_release);
    notify();
    if (thread.joinable()) thread.join();
  }
};

ControlPlane::ControlPlane(std::unique_ptr<State> state) : state_(std::move(state)) {}

ControlPlane::~ControlPlane() {
  state_->stop();
}

void ControlPlane::leave() {
  state_->stop();
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::join(const ClusterOptions& options,
                                                         Identity self) {
  if (self.boot_id.empty()) self.boot_id = make_boot_id();
  HOCKET_TRY_VOID(check(self));
  auto state = std::make_unique<State>(options, std::move(self));
  State& s = *state;
  if (s.options.store) {
    s.role = std::make_unique<ElectedRole>(s.options, s.self, s.poller, s.shared);
  } else if (s.self.rank == 0) {
    HOCKET_TRY(Fd listener,
               Coordinator::listen(s.options, s.options.init_addr, s.options.rank_wait));
    auto coordinator = std::make_unique<Coordinator>(
        s.options, s.self, s.poller, s.shared, Coordinator::Start{.listener = std::move(listener)});
    s.port = coordinator->port();
    log::info("cluster: rank 0 of {} listens at port {}", s.self.num_ranks, s.port);
    s.role = std::move(coordinator);
  } else {
    s.role = std::make_unique<Follower>(s.options, s.self, s.poller, s.shared);
  }
  std::unique_ptr<ControlPlane> plane(new ControlPlane(std::move(state)));
  {
    const BlockedSignals blocked;
    s.thread = Thread({.name = "cluster"}, [&s] { s.run(); });
  }
  // The thread itself keeps to rank_wait and reports a better error, so this waits longer.
  HOCKET_TRY_VOID(s.shared.wait_view(options.rank_wait + options.handshake + kStorePatience));
  return plane;
}

Result<ClusterView> ControlPlane::wait_epoch(Duration max_wait) {
  return state_->shared.wait_epoch(max_wait);
}

Result<int> ControlPlane::wait_replicas(Duration max_wait) {
  return state_->shared.wait_replicas(max_wait);
}

Result<void> ControlPlane::enter(uint32_t epoch) {
  return state_->shared.enter(epoch);
}

const std::atomic<uint32_t>& ControlPlane::aborted() const {
  return state_->shared.abort;
}

OwnHeartbeat& ControlPlane::own_heartbeat() {
  return state_->shared.own_heartbeat;
}

void ControlPlane::post_report(uint32_t epoch, int rank, std::string_view why) {
  if (epoch == 0) return;  // the epoch is over already, and all ranks know
  ControlCommand command = ReportMessage{.epoch = epoch, .rank = rank, .why = cut_why(why)};
  if (!state_->commands.push(command))
    log::error("cluster: too many messages wait for the control thread; one is not sent: {}", why);
  state_->notify();
}

void ControlPlane::report_lost(int rank, std::string_view why) {
  post_report(state_->shared.leave_epoch(), rank, why);
}

void ControlPlane::report_unreachable(uint32_t epoch, int rank, std::string_view why) {
  state_->shared.leave_epoch(epoch);
  post_report(epoch, rank, why);
}

void ControlPlane::abort(std::string_view why) {
  post_report(state_->shared.leave_epoch(), -1, why);
}

ClusterView ControlPlane::view() const {
  return state_->shared.view();
}

uint64_t ControlPlane::num_changes() const {
  return state_->shared.num_changes.load(std::memory_order_relaxed);
}

std::optional<Error> ControlPlane::failure() const {
  return state_->shared.failure();
}

std::vector<RankStatus> ControlPlane::status() const {
  return state_->shared.status();
}

uint16_t ControlPlane::port() const {
  return state_->port;
}

std::string ControlPlane::local_host() const {
  return state_->shared.local_host();
}

const Identity& ControlPlane::self() const {
  return state_->self;
}

Proof ControlPlane::key_for(std::string_view use) const {
  return derive_key(state_->options.token, use);
}

const std::shared_ptr<const TlsContext>& ControlPlane::tls() const {
  return state_->options.tls;
}

bool ControlPlane::pauses_others() const {
  return state_->self.rank == 0 && !state_->options.store;
}

Result<StoreReply> ControlPlane::ask(StoreRequest request, Duration max_wait) {
  if (request.key.size() > kMaxStoreKeyBytes || request.value.size() > kMaxStoreValueBytes)
    return fail(ErrorCode::bad_value,
                "an entry of the store has {} bytes of key and {} of value; at most {} and {} are "
                "taken",
                request.key.size(), request.value.size(), kMaxStoreKeyBytes, kMaxStoreValueBytes);
  StoreCall call{.request = std::move(request), .done = {}};
  std::future<Result<StoreReply>> answer = call.done.get_future();
  ControlCommand command = std::move(call);
  if (!state_->commands.push(command))
    return fail(ErrorCode::queue_full, "too many messages wait for the control thread");
  state_->notify();
  if (answer.wait_for(max_wait + kStorePatience) != std::future_status::ready)
    return fail(ErrorCode::timed_out, "the ranks' store did not answer in time");
  return answer.get();
}

namespace {

int64_t whole_ms(Duration d) {
  return std::chrono::ceil<std::chrono::milliseconds>(d).count();
}

}  // namespace

Result<void> ControlPlane::set(std::string_view key, std::string_view value, Duration lifetime) {
  HOCKET_TRY([[maybe_unused]] const auto reply, ask({.op = StoreOp::set,
                                                     .key = std::string(key),
                                                     .value = std::string(value),
                                                     .number = whole_ms(lifetime)},
                                                    {}));
  return {};
}

Result<std::string> ControlPlane::get(std::string_view key) {
  HOCKET_TRY(auto reply, ask({.op = StoreOp::get, .key = std::string(key)}, {}));
  return std::move(reply.value);
}

Result<std::string> ControlPlane::wait(std::string_view key, Duration max_wait) {
  HOCKET_TRY(
      auto reply,
      ask({.op = StoreOp::wait, .key = std::string(key), .number = whole_ms(max_wait)}, max_wait));
  return std::move(reply.value);
}

Result<int64_t> ControlPlane::add(std::string_view key, int64_t number) {
  HOCKET_TRY(const auto reply,
             ask({.op = StoreOp::add, .key = std::string(key), .number = number}, {}));
  return reply.number;
}

Result<void> ControlPlane::erase(std::string_view key) {
  HOCKET_TRY([[maybe_unused]] const auto reply,
             ask({.op = StoreOp::erase, .key = std::string(key)}, {}));
  return {};
}

}  // namespace hocket
