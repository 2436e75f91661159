#include "engine/busy_sessions.h"

#include <algorithm>

#include "core/queue_limits.h"

namespace hocket {
namespace {

constexpr QueueLimit<> kSessionWaitLimit{
    "another request already waits for this session, or for the name it is saved under",
    "ask again when that one has ended"};
constexpr QueueLimit<int64_t> kSessionsOfClientLimit{
    "{} requests for sessions of this client have not ended",
    "ask again when one has ended; if none ends, look whether the disk of --kv-cache-dir answers"};

using BusyCalls = std::vector<BusySessions::Call>;

bool share_key(const BusySessions::Call& a, const BusySessions::Call& b) {
  return a.session == b.session || a.session == b.name || a.name == b.session || a.name == b.name;
}

bool any_shares(const BusyCalls& calls, const BusySessions::Call& call) {
  return std::ranges::any_of(calls, [&](const auto& other) { return share_key(other, call); });
}

// Removes one call that has the same keys and client.
void remove_call(BusyCalls& calls, const BusySessions::Call& call) {
  calls.erase(std::ranges::find_if(calls, [&](const auto& other) {
    return other.session == call.session && other.name == call.name && other.client == call.client;
  }));
}

}  // namespace

struct BusySessions::State {
  Mutex mutex;
  std::condition_variable ended;
  BusyCalls busy HOCKET_GUARDED_BY(mutex);
  BusyCalls waiting HOCKET_GUARDED_BY(mutex);
};

BusySessions::Hold::~Hold() {
  if (state_ == nullptr) return;
  {
    const MutexLock lock(state_->mutex);
    remove_call(state_->busy, call_);
  }
  state_->ended.notify_all();
}

BusySessions::BusySessions(int max_of_client)
    : max_of_client_(max_of_client), state_(std::make_shared<State>()) {}

Result<BusySessions::Hold> BusySessions::begin(const Call& call, Duration limit) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  // A call that waits counts, since it becomes busy whatever else has begun by then.
  const int64_t num_mine = std::ranges::count(state.busy, call.client, &Call::client) +
                           std::ranges::count(state.waiting, call.client, &Call::client);
  if (max_of_client_ > 0)
    HOCKET_TRY_VOID(check_limit(kSessionsOfClientLimit,
                                {.used = num_mine, .max = int64_t{max_of_client_}}, num_mine));
  if (any_shares(state.waiting, call)) return fail(queue_full(kSessionWaitLimit));
  state.waiting.push_back(call);
  const bool is_free = state.ended.wait_for(
      lock, limit, [&]() HOCKET_REQUIRES(state.mutex) { return !any_shares(state.busy, call); });
  remove_call(state.waiting, call);
  if (!is_free)
    return fail(error(ErrorCode::request_timeout,
                      "another request for this session, or for the name it is saved under, has "
                      "not ended within {:.0f} s",
                      to_seconds(limit))
                    .with_fix("ask again when it has ended"));
  state.busy.push_back(call);
  return Hold(state_, call);
}

}  // namespace hocket
