// The prefix cache's news as server-sent events, for routers: GET /kv_events.
//
//   engine -> KvEventChannel -> thread `kv_events` -> every listener's exchange
//
//   {"type":"all_cleared","page_tokens":32,"num_dropped":0}      forget everything; what follows
//   {"type":"block_stored","block_hash":H,"parent_block_hash":H}  is all there is
//   {"type":"block_removed","block_hash":H}                      H: 64 hex digits (page_hash.h)
//
// When a listener joins, all begin anew. One that cannot keep up with 32 MB/s for long is dropped
// and may come again.   Owner: the Server.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread.h"
#include "policy/cache/kv_events.h"
#include "server/wire/sse.h"

namespace hocket {

// As above, without the event's framing.
std::string kv_event_json(const KvEvent& event, int page_tokens);

class KvEventFeed {
 public:
  KvEventFeed(KvEventChannel& channel, int page_tokens);
  ~KvEventFeed();

  // False when there are kMaxListeners already.   Thread: any.
  bool add(std::shared_ptr<HttpExchange> exchange);
  // Ends all streams and the thread. The generator has stopped.
  void stop();

  static constexpr size_t kMaxListeners = 16;

 private:
  void run();
  void forget_those_who_left();
  void send(std::string_view block);

  KvEventChannel& channel_;
  const int page_tokens_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;  // of listeners_
  std::vector<std::shared_ptr<HttpExchange>> listeners_;
  Thread thread_;
};

}  // namespace hocket
