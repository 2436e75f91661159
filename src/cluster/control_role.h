// The two sides of the control plane: the coordinator (rank 0) and a follower (every other rank).
// One thread runs either; what it shares with other threads is in Shared.
// Thread: ControlRole the control plane's; Shared any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cluster/connection.h"
#include "cluster/membership.h"
#include "cluster/pulse.h"

namespace hocket {

struct ClusterOptions {
  HostPort init_addr;     // of rank 0; port 0 there: any free one
  std::string token;      // empty: none
  bool insecure = false;  // no token across hosts, said aloud
  LivenessLimits limits;
  Duration rank_wait = std::chrono::seconds(60);  // for rank 0, at the start and when it was lost
  Duration redial = std::chrono::milliseconds(500);  // between attempts, and for each to connect
  Duration handshake = std::chrono::seconds(2);      // for a stranger to prove itself
  int most_strangers = 64;                           // more: the oldest is closed
};

// What other threads see of the control thread's work.
class Shared {
 public:
  Pulse pulse;
  // Non-zero: the step is to be given up. See ControlPlane::aborted().
  std::atomic<uint32_t> abort{1};
  std::atomic<uint64_t> num_changes{0};

  // Control thread. A view that is not whole, or of another epoch than the engine entered, aborts.
  void publish(const ClusterView& view);
  // The same, and the view's epoch is over for this rank.
  void publish_over(const ClusterView& view);
  void publish_status(std::vector<RankStatus> status);
  void publish_local_host(std::string host);
  // No more is tried.
  void give_up(const Error& why);

  // Any thread.
  ClusterView view() const;
  std::optional<Error> failure() const;
  std::vector<RankStatus> status() const;
  std::string local_host() const;
  Result<void> enter(uint32_t epoch);
  // The epoch the engine is in is over, before anybody says so. 0: it is in none.
  uint32_t leave_epoch();
  // Errors: what gave up; timed_out, saying who is missing.
  Result<ClusterView> wait_whole(Duration most);
  // Until there is any view. Errors: what gave up; timed_out.
  Result<void> wait_view(Duration most);

 private:
  void set(const ClusterView& view);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ClusterView view_;
  std::optional<Error> failure_;
  std::vector<RankStatus> status_;
  std::string local_host_;
  uint32_t entered_ = 0;  // by the engine; 0: none
  uint32_t over_ = 0;     // epochs up to here cannot be entered
};

// What other threads ask of the control thread.
struct StoreCall {
  StoreRequest request;  // its id is given later
  std::promise<Result<StoreReply>> done;
};
using ControlCommand = std::variant<StoreCall, ReportMessage>;

// Calls under way, by id. At most kMost.
class StoreCalls {
 public:
  static constexpr size_t kMost = 256;
  // The request to send; nothing where it was refused.
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
  // A socket is ready.
  virtual void on_event(uint64_t token, uint32_t events, TimePoint now) = 0;
  virtual void on_command(ControlCommand command, TimePoint now) = 0;
  // At next_deadline() and after all that happened was told.
  virtual void on_tick(TimePoint now) = 0;
  virtual TimePoint next_deadline() const = 0;
  // Says so to the others, as far as that goes at once.
  virtual void leave(TimePoint now) = 0;
};

// Tokens of the poller below this are the plane's own.
inline constexpr uint64_t kWakeToken = 0, kListenToken = 1, kFirstSessionToken = 2;

}  // namespace hocket
