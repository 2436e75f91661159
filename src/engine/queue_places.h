// Shares the places of the queue among clients. A text is refused, before a rank gets it, if
//
//   all places are taken;
//   it is a later text of its request, and half of the places are taken;
//   its client has kPerFreePlace times as many waiting texts as places are free.
//
// So the more texts a client has in the queue, the more places must be free for its next one: one
// client gets 7/8 of the places, and n clients that fill the queue together leave one place in
// 7n + 1 to others. A client is identified by the proven half of its name (core/client_name.h),
// because it may claim many names; 0 is for texts without a client, as in a program that embeds the
// engine. With priorities the scheduler decides which text makes room.
// Thread: any.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "base/result.h"
#include "policy/scheduler/request.h"

namespace hocket {

class QueuePlaces {
 public:
  static constexpr int64_t kPerFreePlace = 7;

  // has_priorities: requests have priorities.
  QueuePlaces(int num_places, bool has_priorities)
      : num_places_(num_places),
        has_priorities_(has_priorities),
        clients_(std::make_shared<Clients>()) {}

  // Checks if the text may wait where num_queued others do, and counts it for its client until it
  // begins or ends (RequestInput::queue_place). Errors: invalid_request if the request has more
  // texts than could ever wait; queue_full.
  Result<void> enter(RequestInput& input, int num_queued);

 private:
  struct Clients {
    Mutex mutex;
    std::unordered_map<uint64_t, int64_t> num_waiting HOCKET_GUARDED_BY(mutex);
  };
  Result<void> take(RequestInput& input, int64_t num_free);

  const int num_places_;
  const bool has_priorities_;
  const std::shared_ptr<Clients> clients_;  // the places own it, too
};

}  // namespace hocket
