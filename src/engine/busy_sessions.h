// The sessions, and the names of saved ones, that calls work on. Calls that share one run one after
// the other: otherwise a save could write the file of a session again that another call has just
// deleted. Others run side by side. At most one call waits for another, so that those for one
// session hold few threads.   Thread: any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "policy/scheduler/sessions.h"

namespace hocket {

class BusySessions {
  struct State;

 public:
  struct Call {
    SessionKey session, name;
    uint64_t client = 0;  // counts for the limit of one client
  };
  // Keeps a session and a name for one call, while it lives, which may be longer than the
  // BusySessions do: a call that hangs keeps them until it has ended.
  class Hold {
   public:
    Hold(std::shared_ptr<State> state, const Call& call) : state_(std::move(state)), call_(call) {}
    Hold(Hold&& other) noexcept = default;
    Hold& operator=(Hold&&) = delete;
    ~Hold();

   private:
    std::shared_ptr<State> state_;  // null: it was moved from
    Call call_;
  };
  // max_of_client: calls of one client that have not ended: those that work, also if they hang, and
  // those that wait. 0: no limit.
  explicit BusySessions(int max_of_client = 0);

  // Waits until no call works on either of the two. Errors: queue_full, at once, if another call
  // waits for one of them, or as many calls of the client as may be have not ended;
  // request_timeout, after `limit`.
  Result<Hold> begin(const Call& call, Duration limit);

 private:
  const int max_of_client_;
  const std::shared_ptr<State> state_;
};

}  // namespace hocket
