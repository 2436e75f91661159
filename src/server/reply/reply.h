// Turns the engine's tokens into answers on the wire.
//
//   text thread: begin() -> ReplyTable -> engine ... outbox -> ReplyTurns: ReplyWriter -> exchange
//
// The requests of a client that leaves or reads too slowly are aborted at once.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/generation/answer.h"
#include "server/http/http.h"
#include "server/reply/answer_progress.h"
#include "server/reply/live_texts.h"
#include "server/reply/reply_table.h"
#include "server/reply/reply_turns.h"
#include "server/reply/reply_writer.h"
#include "server/reply/stream_position.h"
#include "server/reply/stream_records.h"
#include "server/reports/metrics.h"

namespace hocket {

class RequestRecorder;

class ReplyService {
 public:
  struct Options {
    Engine* engine = nullptr;
    Outbox* outbox = nullptr;
    Metrics* metrics = nullptr;  // null: nothing is counted
    // Null: no request has a record (PreparedRequest::stream_record).
    StreamRecords* stream_records = nullptr;
    // Texts under way; beyond it begin() answers queue_full. resume() takes further ones: at most
    // as many as the other ranks may have.
    size_t max_live = 4096;
  };
  explicit ReplyService(Options options);
  ~ReplyService();

  // Takes a request whose prompts are tokenized and fit the context, gives it to the engine and
  // answers it. If the engine refuses the request, the answer is that error.   Thread: any.
  // recorder: null if nothing is observed.
  void begin(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
             std::shared_ptr<RequestRecorder> recorder = nullptr);
  // The same for a request whose stream another rank had sent up to `sent` when it was lost. The
  // client gets what follows. If ranks are lost, it waits for them. No queue refuses it, since it
  // was taken already.   Thread: any.
  void resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
              std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent);
  // The same for a stream whose client connected again: the answer's tokens are known up to those
  // in `sent`, and the client has the events in `has`. The queue of texts takes it as a new one.
  void resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
              std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent, StreamPosition has);
  // Ends the stream that has this record, since another connection continues it. Does nothing if
  // there is none under way.   Thread: any.
  void take_over(const StreamRecord& record);
  // Ends the texts with this rid or answer id, with finish_reason "abort"; if `who` is not empty,
  // only those of that principal. Returns how many were ended.   Thread: any.
  size_t abort(std::string_view rid, std::string_view who = {});
  // Returns the number of texts under way.   Thread: any.
  size_t num_live() const { return table_.num_texts(); }
  // live_texts() returns the oldest texts under way, at most `max_texts`; ended() those that ended
  // last. Neither waits for a job's lock.   Thread: any.
  std::vector<LiveText> live_texts(size_t max_texts) const { return table_.live_texts(max_texts); }
  std::vector<EndedText> ended() const { return writer_.ended(); }
  // Answers the requests that are left with shutting_down and the cause, if there is one. Their
  // streams may continue elsewhere by their records.   Thread: any.
  void cut_off(std::string_view why = {});
  // Calls cut_off() and ends the thread. Precondition: the engine has stopped.
  void stop();

 private:
  using JobPtr = std::shared_ptr<ReplyJob>;
  void begin(const JobPtr& job, const std::shared_ptr<HttpExchange>& exchange);
  Result<void> enter(const JobPtr& job);
  Result<void> submit(const ReplyJob& job);

  const Options options_;
  ReplyTable table_;
  ReplyWriter writer_;
  ReplyTurns turns_;
};

}  // namespace hocket
