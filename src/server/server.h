// Connects the parts of the server around an engine: HTTP, text threads, replies, probes, metrics.
//
//   http* -> route -> text*: JSON, template, tokens -> engine -> outbox -> reply -> exchange
//
// apps owns it, and also the engine, the tokenizer and the template, which must outlive it.
// Thread: any, one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/generation/generation_request.h"
#include "server/join_flags.h"
#include "server/ranks/rank_probes.h"

namespace hocket {

class Server {
 public:
  struct Options {
    ServerSettings settings;
    Engine* engine = nullptr;
    const Tokenizer* tokenizer = nullptr;         // null: text endpoints answer no_tokenizer
    const ChatTemplate* chat_template = nullptr;  // null: chat answers template_failed
    // If ranks run in several processes: the address at which the others reach this one.
    std::string internal_host;
    // Changed settings that /get_server_info shows besides the engine's.
    std::vector<SettingChange> changes;
    std::vector<SlowPath> slow_paths;
    // GET /join_terms sends them to a rank that is about to join.
    JoinFlags join_flags;
    // Ends the process as SIGTERM does: it drains. Empty: /scale_ranks is refused. Thread: any.
    std::function<void()> leave;
    int num_http_threads = 1;
    int num_text_threads = 2;
    Duration rank_probe_interval = RankProbes::kInterval;
  };
  // Starts the engine and listens. When it returns, the server is ready. Errors: those of
  // HttpServer::create and of choose_model_formats.
  static Result<std::unique_ptr<Server>> create(Options options);
  // Calls drain() with a patience of 0.
  ~Server();

  int port() const;

  // Reads the files of keys and certificates again. On an error the old ones stay.
  Result<void> reload();

  // Shuts down in this order:
  // 1. New requests are refused with shutting_down; probes are answered.
  // 2. Ranks that serve on without this one take back the requests that they passed to it. Running
  //    requests may take up to `patience`.
  // 3. Requests of other ranks are cut off, so that these continue them; all others end with
  //    shutting_down, and their streams can continue by their ids where another rank keeps them.
  // 4. Connections are refused, and all threads end.
  // `why` joins the message of what is cut off. Returns true if nothing was. For SIGTERM, patience
  // is settings.http.shutdown_timeout_s.
  bool drain(Duration patience, std::string_view why = {});

  // Returns the reason to end the process, if there is one. Errors: watchdog if the engine has
  // been silent for too long; those of Engine::failure.
  Result<void> watchdog() const;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  void return_forwarded_requests();
  std::unique_ptr<State> state_;
};

}  // namespace hocket
