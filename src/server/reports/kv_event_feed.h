// Sends changes of the prefix cache as server-sent events to routers: GET /kv_events.
//
//   engine -> KvEventChannel -> thread `kv_events` -> every listener's exchange
//
//   {"type":"all_cleared","page_tokens":32,"num_dropped":0}      forget all blocks; events after
//   {"type":"block_stored","block_hash":H,"parent_block_hash":H}  this one list all that exist
//   {"type":"block_removed","block_hash":H}                      H: 64 hex digits (page_hash.h)
//
// When a listener joins, all listeners get all_cleared and the whole list again. A listener that
// cannot keep up with 32 MB/s for long is dropped and may connect again.   Owner: the Server.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"
#include "policy/cache/kv_events.h"
#include "server/http/sse.h"

namespace hocket {

// Returns the JSON of one event as above, without SSE framing.
std::string kv_event_json(const KvEvent& event, int page_tokens);

class KvEventFeed {
 public:
  KvEventFeed(KvEventChannel& channel, int page_tokens);
  ~KvEventFeed();

  // Adds a listener. Errors: queue_full if there are kMaxListeners already.   Thread: any.
  Result<void> add(std::shared_ptr<HttpExchange> exchange);
  // Ends all streams and the thread. Precondition: the engine has stopped.
  void stop();

  static constexpr size_t kMaxListeners = 16;

 private:
  void run();
  void remove_departed();
  void send(std::string_view block);

  KvEventChannel& channel_;
  const int page_tokens_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> listeners_ HOCKET_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace hocket
