// Gives pages from files to other services that ask by key, and computes prompts for them.
//
//   thread kv_serve     accepts connections
//   a thread for each   answers one client (page_link.h has the protocol)
//
// A flood of connections keeps no client out: the oldest connection without proof of the token is
// closed for a new one; a client with the token has shown it long before. Faults of one connection
// end that one alone.
//
// A prompt that is computed for a client is an ordinary request with num_prefill_tokens(), which
// are dropped. Its pages reach the files chunk by chunk, and the client from there. The client may
// have pages of another size, and makes them of these (regrouped_pages.h). If the client
// leaves, the request is aborted, so nothing is held for it. Owner: the engine. Thread: any.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/log_limit.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"
#include "engine/pages/file_store.h"
#include "engine/pages/page_buffers.h"
#include "engine/pages/page_forms.h"
#include "engine/pages/page_link.h"
#include "engine/pages/page_source.h"
#include "engine/pages/prefill_role.h"
#include "engine/pages/prefill_watch.h"
#include "engine/stats/cache_tier_stats.h"
#include "policy/scheduler/request.h"

namespace hocket {

// A prompt that a client wants to have computed.
struct PrefillPrompt {
  CacheNamespace name_space;
  std::vector<TokenId> tokens;
  int page_tokens = 0;  // the size of the client's pages
};

class PageServer {
 public:
  // Connections of clients that have shown the token, and of those that have not yet, which take
  // none of the former. Further clients get the answer that the service is busy; a further
  // connection without proof takes the place of the oldest one, whose connection ends.
  static constexpr int kMaxConnections = TierBuffers::kMaxServed;
  static constexpr int kMaxStrangers = 64;
  // All connections and their threads, those that are about to end included. Further ones wait in
  // the listener's queue until one has ended.
  static constexpr int kMaxClients = kMaxConnections + 2 * kMaxStrangers;
  // Time between two lines about strangers in the log.
  static constexpr Duration kWarningInterval = std::chrono::seconds(5);
  // Ends a connection whose client asks for nothing. One whose engine is in a long step asks for
  // nothing meanwhile, because its buffers are full; a host that is gone is noticed within
  // PageLink::kSilence.
  static constexpr Duration kIdle = std::chrono::seconds(300);
  // Files that are written later push out those of a prompt that its client has not fetched yet. So
  // the prompts under way have this share of what the folder may take, and further ones are
  // refused.
  static constexpr int64_t kShareOfFolder = 2;  // a half
  // A page is absent if this service has written none for so long, though prompts are computed. One
  // that waits in line behind others is awaited as long as its client stays.
  static constexpr Duration kMaxWait = std::chrono::seconds(300);

  using Counts = AtomicCounts<ServedCounters>;
  struct Options {
    SocketAddress address;
    std::string token;  // the cluster's; empty: none
    PageTls tls;
    std::shared_ptr<const PageForms> forms;  // never null
    int64_t page_bytes = 0, state_bytes = 0;
    std::shared_ptr<FileStore> files;
    std::shared_ptr<Counts> counts;
    std::shared_ptr<PrefillWatch> prefills;
    std::shared_ptr<const PrefillRole> role;  // says if prompts are computed for others
    std::function<Result<RequestId>(PrefillPrompt)> submit;
    std::function<void(RequestId)> abort;
    Duration max_wait = kMaxWait;
  };
  // Listens. Errors: port_in_use, io, out_of_memory.
  static Result<std::unique_ptr<PageServer>> create(Options options);
  ~PageServer();
  void start();
  void stop();

  SocketAddress address() const { return local_address(listener_); }

 private:
  enum class PageClientState : uint8_t { stranger, served, dropped };
  struct PageClient {
    std::atomic<PageClientState> state{PageClientState::stranger};
    std::atomic<bool> done{false};
    Mutex mutex;
    int socket HOCKET_GUARDED_BY(mutex) = -1;  // that of the connection, while it is open
    Thread thread;
  };
  PageServer(Options options, Fd listener, Buffer memory, size_t num_buffers);
  void run();
  void accept_one();
  void start_client(Fd socket);
  void drop_oldest_stranger();
  void answer(PageClient& client, Fd socket);

  const Options options_;
  const Fd listener_;
  PageBuffers buffers_;  // the pages that are read or sent now; clients wait for one
  std::atomic<bool> stopping_{false};
  std::atomic<int> num_served_{0};        // connections
  std::atomic<int64_t> prompt_bytes_{0};  // pages of the prompts in flight
  std::list<PageClient> clients_;         // the oldest first; used by the thread kv_serve
  LogLimit warnings_{kWarningInterval};
  Thread thread_;
  friend class PageConnection;
};

}  // namespace hocket
