// Turns the bodies of clients' requests into requests of the engine and submits them; resumes a
// stream when its client reconnects.
//
//   body -> parsed, template, tokens, fits -> this process: reply.h, stream_keeper.h
//                                         \-> with ranks in other processes: rank_router.h
#pragma once

#include <memory>
#include <optional>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/generation/api.h"
#include "server/generation/prepared_request.h"
#include "server/health_and_watchdog.h"
#include "server/observe/observer.h"
#include "server/ranks/rank_router.h"
#include "server/reply/reply.h"
#include "server/reply/stream_records.h"

namespace hocket {

// Borrows all pointers in Options.   Thread: text.
class RequestStarter {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;
  struct Options {
    const ServerSettings* settings = nullptr;
    ServedModel model;
    Engine* engine = nullptr;
    ReplyService* reply = nullptr;
    const Health* health = nullptr;
    Observer* observer = nullptr;
    RankRouter* rank_router = nullptr;  // null: all ranks are in this process
    AnswerStore* answers = nullptr;
    StreamRecords* stream_records = nullptr;
  };
  explicit RequestStarter(const Options& options) : options_(options) {}

  // Begins the request on this rank or the one that the router chooses; answers an error too.
  void begin(const Api& api, const HttpRequest& request, const Exchange& exchange,
             TimePoint arrived) const;
  // Makes the rest of a stream whose client `asked` for it and has it up to `position`.
  void resume(const HttpRequest& asked, const Exchange& exchange, RecordedRequest recorded,
              StreamPosition position, TimePoint arrived) const;
  // Returns what is known of a request before its body is read.   Thread: any.
  RequestContext context_of(const HttpRequest& request) const;

 private:
  // Does all work before the engine: parses, applies the template, tokenizes, fits to the context,
  // adds the facts that the body does not have, and counts the tokens in the key's limits.
  Result<PreparedRequest> prepare(const Api& api, const HttpRequest& request,
                                  std::optional<AnswerIdentity> given, TimePoint arrived) const;
  // Sets the facts of the connection and of its client.
  Result<void> add_client_facts(PreparedRequest& prepared, const HttpRequest& request,
                                TimePoint arrived) const;

  const Options options_;
};

}  // namespace hocket
