#include "engine/queue_places.h"

#include <algorithm>

#include "core/client_name.h"
#include "core/queue_limits.h"
#include "policy/scheduler/waiting_queue.h"

namespace hocket {
namespace {

// Half of --max-queued-requests.
constexpr QueueLimit<int64_t, int64_t> kLaterTextLimit{
    "{} texts wait already; the second and later texts of a request may wait only below {}, half "
    "of the queue",
    "try again later, send fewer texts in a request, or raise --max-queued-requests"};
constexpr QueueLimit<int64_t, int64_t> kShareLimit{
    "{} texts of this client wait already, which is its share of the queue: {} places are left for "
    "others",
    "try again later, or raise --max-queued-requests"};

}  // namespace

Result<void> QueuePlaces::enter(RequestInput& input, int num_queued) {
  const int share = std::max(1, num_places_ / 2);
  if (input.index_in_request > 0 && input.index_in_request >= share)
    return fail(error(ErrorCode::invalid_request,
                      "the request has more than {} texts (prompts times n), half of the {} that "
                      "may wait",
                      share, num_places_)
                    .with_param("prompt")
                    .with_fix(fmt::format("send at most {} in a request, or start the server with "
                                          "a larger --max-queued-requests",
                                          share)));
  if (input.index_in_request > 0)
    HOCKET_TRY_VOID(
        check_limit(kLaterTextLimit, {.used = num_queued, .max = share}, num_queued, share));
  if (has_priorities_) return {};
  HOCKET_TRY_VOID(check_limit(kWaitingLimit, {.used = num_queued, .max = num_places_}, num_queued,
                              num_places_));
  return take(input, num_places_ - num_queued);
}

Result<void> QueuePlaces::take(RequestInput& input, int64_t num_free) {
  const uint64_t client = proven_client(input.client);
  if (client == 0) return {};
  {
    const MutexLock lock(clients_->mutex);
    int64_t& num_waiting = clients_->num_waiting[client];
    HOCKET_TRY_VOID(check_limit(kShareLimit, {.used = num_waiting, .max = kPerFreePlace * num_free},
                                num_waiting, num_free));
    ++num_waiting;
  }
  // If there is no memory for the place, it gives itself back, so no lock may be held.
  input.queue_place =
      std::shared_ptr<const void>(clients_.get(), [clients = clients_, client](const void*) {
        const MutexLock again(clients->mutex);
        const auto mine = clients->num_waiting.find(client);
        if (--mine->second == 0) clients->num_waiting.erase(mine);
      });
  return {};
}

}  // namespace hocket
