// The paths of the APIs, and clients that connect to a stream again, on any rank; and what ranks
// report each other of their streams.
//
//   POST of an API's path                 begins a request, or with Last-Event-ID continues
//   GET /v1/streams/ID?starting_after=N   any stream; also with Last-Event-ID
//   GET /v1/responses/ID?stream=true      as OpenAI's API has it
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation/task_pool.h"
#include "server/ranks/rank_router.h"
#include "server/reply/reply.h"
#include "server/reply/stream_records.h"
#include "server/request_starter.h"
#include "server/routes.h"

namespace hocket {

inline constexpr std::string_view kStreamsBelow = "/v1/streams/";
inline constexpr std::string_view kLastEventHeader = "Last-Event-ID";

// Returns true if a GET asks for a stream to continue, which makes the server compute.
bool asks_for_stream(const HttpRequest& head);

// Borrows all pointers in Options.   Thread: any.
class StreamEndpoints {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;
  struct Options {
    const RequestStarter* starter = nullptr;
    ReplyService* reply = nullptr;
    StreamRecords* stream_records = nullptr;
    RankRouter* rank_router = nullptr;  // null: all ranks are in this process
    // Runs a task on a thread of the text pool.
    std::function<Result<void>(TaskPool::Task&&, uint64_t client)> push;
  };
  explicit StreamEndpoints(Options options) : options_(std::move(options)) {}

  // Adds the routes below /v1/streams and those between ranks, and the paths of all APIs but
  // /v1/responses, which has paths of its own.
  void add_routes(std::vector<Route>& routes) const;
  // Begins the request that was sent to the API's path, or continues the stream whose event it
  // names.   Thread: text.
  void begin(const Api& api, const HttpRequest& request, const Exchange& exchange,
             TimePoint arrived) const;
  // Continues the stream that `id` names, or Last-Event-ID if `id` is empty; answers an error
  // too. The position is that in Last-Event-ID, or starting_after. Answers queue_full
  // if other ranks are asked for as many clients as RankRouter::max_returning().
  void resume(const HttpRequest& request, const Exchange& exchange, std::string_view id,
              TimePoint arrived) const;

 private:
  struct ReturningClient;
  // Returns the record as it is when this rank writes the stream no longer.
  Result<StreamSnapshot> take(StreamSnapshot found) const;
  void choose(ReturningClient& client, const std::vector<PeerAnswer>& there) const;
  void keep(const HttpRequest& request, const Exchange& exchange) const;
  void give(const HttpRequest& request, const Exchange& exchange) const;

  const Options options_;
  mutable std::atomic<size_t> num_returning_{0};  // clients for whom other ranks are asked
};

}  // namespace hocket
