// The two roles of the control plane: the coordinator (rank 0) and a follower (every other rank).
// With etcd a rank has now one, now the other (elected_role.h). One thread runs them; Shared holds
// what it shares with other threads. Thread: the control plane's for ControlRole; any for Shared.
#pragma once

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "cluster/connection.h"
#include "cluster/etcd_client.h"
#include "cluster/membership.h"
#include "cluster/own_heartbeat.h"

namespace hocket {

struct ClusterOptions {
  HostPort init_addr;  // address of rank 0; port 0 takes any free port. Without a store only
  // The store in which ranks find each other and the coordinator; nullopt: rank 0 is it.
  std::optional<EtcdAddress> store;
  std::shared_ptr<const TlsContext> store_tls;  // null: without TLS
  // The address where this rank listens while it coordinates; without a host the one by which it
  // reaches the store. With a store only.
  HostPort listen;
  std::string token;                      // empty if there is none
  std::shared_ptr<const TlsContext> tls;  // null: without TLS
  bool insecure = false;                  // allows ranks across hosts without a token
  int tolerate_ranks = 0;  // number of ranks that may be missing while the others serve
  LivenessLimits limits;
  // Longest wait for rank 0 or a coordinator, at the start and after a loss. With tolerate_ranks
  // also the time after which enough ranks begin without the others.
  Duration rank_wait = std::chrono::seconds(60);
  // Pause between attempts, and time limit of each.
  Duration redial = std::chrono::milliseconds(500);
  Duration handshake = std::chrono::seconds(2);  // time for a new connection to join
  int max_strangers = 64;  // connections before their join; beyond, the oldest closes
};

// The state of the control thread that other threads read.
class Shared {
 public:
  explicit Shared(int rank) : rank_(rank) {}

  OwnHeartbeat own_heartbeat;
  // Non-zero if the step must be given up. See ControlPlane::aborted().
  std::atomic<uint32_t> abort{1};
  std::atomic<uint64_t> num_changes{0};

  // Stores the view (control thread). Sets `abort` if the view does not serve or the engine is in
  // another epoch.
  void publish(const ClusterView& view);
  // Does the same, and ends the view's epoch for this rank.
  void publish_over(const ClusterView& view);
  void publish_status(std::vector<RankStatus> status);
  void publish_local_host(std::string host);
  // Stores why this rank stopped trying; the waits below fail with it, and `abort` is set.
  void give_up(const Error& why);

  // The functions below may be called by any thread.
  ClusterView view() const;
  // Returns the last epoch that this process knows. The view may be of an earlier one if rank 0 was
  // started anew and has counted from the start; this rank enters none that it knew to be over.
  uint32_t last_epoch() const;
  std::optional<Error> failure() const;
  std::vector<RankStatus> status() const;
  std::string local_host() const;
  Result<void> enter(uint32_t epoch);
  // Ends the epoch that the engine is in, before the coordinator announces it. Returns it, or 0 if
  // there was none.
  uint32_t leave_epoch();
  // Ends an epoch for this rank, whether the engine has entered it or not.
  void leave_epoch(uint32_t epoch);
  // Waits for an epoch that serves and has this rank in it. Errors: failure(); timed_out, naming
  // the missing ranks.
  Result<ClusterView> wait_epoch(Duration max_wait);
  // Waits until the ranks have agreed on ClusterView::replicas. Errors: as of wait_epoch().
  Result<int> wait_replicas(Duration max_wait);
  // Waits until there is a view. Errors: failure(); timed_out.
  Result<void> wait_view(Duration max_wait);

 private:
  void set(const ClusterView& view) HOCKET_REQUIRES(mutex_);
  // True if this rank may work in the epoch of the view.
  bool is_in() const HOCKET_REQUIRES(mutex_) {
    return view_.serves() && view_.present().has(rank_) && view_.epoch > over_;
  }

  const int rank_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  ClusterView view_ HOCKET_GUARDED_BY(mutex_);
  std::optional<Error> failure_ HOCKET_GUARDED_BY(mutex_);
  std::vector<RankStatus> status_ HOCKET_GUARDED_BY(mutex_);
  std::string local_host_ HOCKET_GUARDED_BY(mutex_);
  uint32_t entered_ HOCKET_GUARDED_BY(mutex_) = 0;  // epoch that the engine entered; 0 if none
  uint32_t over_ HOCKET_GUARDED_BY(mutex_) = 0;     // epochs up to this one cannot be entered
};

// A command of another thread to the control thread.
struct StoreCall {
  StoreRequest request;  // StoreCalls::start() fills its id
  std::promise<Result<StoreReply>> done;
};
using ControlCommand = std::variant<StoreCall, ReportMessage>;

// Holds the open calls, by id. At most kMax.
class StoreCalls {
 public:
  static constexpr size_t kMax = 256;
  // Returns the request to send; nullopt if the call was refused.
  std::optional<StoreRequest> start(StoreCall call);
  void finish(const StoreReply& reply);
  void fail_all(const Error& why);

 private:
  std::map<uint64_t, std::promise<Result<StoreReply>>> open_;
  uint64_t last_id_ = 0;
};

class ControlRole {
 public:
  virtual ~ControlRole() = default;
  // Handles a socket that is ready.
  virtual void on_event(uint64_t token, uint32_t events, TimePoint now) = 0;
  virtual void on_command(ControlCommand command, TimePoint now) = 0;
  // Runs at next_deadline(), and after all events and commands that waited were handled.
  virtual void on_tick(TimePoint now) = 0;
  virtual TimePoint next_deadline() const = 0;
  // Sends the other ranks the reason why this one leaves, without waiting for a socket, and ends
  // open calls with that error.
  virtual void leave(const Error& why) = 0;
};

// The control plane itself uses poller tokens below kFirstSessionToken.
inline constexpr uint64_t kWakeToken = 0, kListenToken = 1, kSeatToken = 2, kFirstSessionToken = 3;

}  // namespace hocket
