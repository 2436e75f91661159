// Turns the engine's tokens into answers on the wire. The thread `reply` empties the outbox,
// decodes text, finds stop strings, writes log-probabilities, blocks of streams and whole answers,
// records times, and ends each answer.
//
//   text thread: begin() -> table -> engine ... outbox -> jobs -> turns -> exchange
//
// The thread empties the whole outbox and gives each output to its job, so that the engine never
// waits for an answer. Then each job with outputs has one turn of kTurn. A job that needs more time
// goes to a second line. After each round of the first line, one job of the second has a turn, so
// long jobs delay only each other.
//
// The requests of a client that leaves or reads too slowly are aborted at once.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "server/generation/answer.h"
#include "server/http/http.h"
#include "server/reply/answer_progress.h"
#include "server/reply/live_texts.h"
#include "server/reply/stream_position.h"
#include "server/reply/stream_records.h"
#include "server/reports/metrics.h"

namespace hocket {

class RequestRecorder;

class ReplyService {
 public:
  static constexpr Duration kTurn = std::chrono::milliseconds(1);
  // Number of positions whose log-probabilities one step of a turn writes. Other steps write one
  // block, or take one token.
  static constexpr size_t kPositionsAtOnce = 64;

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

  // Takes a request whose prompts are tokenized and fit the context, hands it to the engine and
  // answers it. If the engine refuses the request, the answer is that error.   Thread: any.
  // recorder: null if nothing is observed.
  void begin(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
             std::shared_ptr<RequestRecorder> recorder = nullptr);
  // The same for a request whose stream another rank had sent up to `sent` when it was lost. The
  // client gets what follows. If ranks are lost, it waits for them. No queue refuses it, since it
  // was taken already.   Thread: any.
  void resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
              std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent);
  // The same for a stream whose client came back: the answer's tokens are known up to those in
  // `sent`, and the client has the events in `has`. The queue of texts takes it as a new one.
  void resume(const std::shared_ptr<HttpExchange>& exchange, PreparedRequest prepared,
              std::shared_ptr<RequestRecorder> recorder, AnswerProgress sent, StreamPosition has);
  // Ends the stream that has this record, since another connection goes on with it. Does nothing if
  // there is none under way.   Thread: any.
  void take_over(const StreamRecord& record);
  // Ends the texts with this rid or answer id, with finish_reason "abort"; if `who` is not empty,
  // only those of that principal. Returns how many were ended.   Thread: any.
  size_t abort(std::string_view rid, std::string_view who = {});
  // Returns the number of texts under way.   Thread: any.
  size_t num_live() const;
  // live_texts() returns the oldest texts under way, at most `max_texts`; ended() those that ended
  // last. Neither waits for a job's lock.   Thread: any.
  std::vector<LiveText> live_texts(size_t max_texts) const;
  std::vector<EndedText> ended() const { return ended_.texts(); }
  // Answers the requests that are left with shutting_down and the cause, if there is one. Their
  // streams may go on elsewhere by their records.   Thread: any.
  void cut_off(std::string_view why = {});
  // Calls cut_off() and ends the thread. Precondition: the engine has stopped.
  void stop();

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  struct JobChoice {
    JobPtr job;
    size_t choice = 0;
  };

  // Functions for the begin and the end of a job, in reply.cc.
  void begin(const JobPtr& job, const std::shared_ptr<HttpExchange>& exchange);
  Result<void> enter(const JobPtr& job);
  Result<void> submit(const Job& job);
  void forget(const Job& job);
  void abort_all_of(const Job& job);
  void fail_job(Job& job, const Error& error);
  // Precondition: inside a catch block. Ends the job with the exception as its error.
  void fail_by_exception(Job& job);
  void drop_job(Job& job);
  // Change the record of the job's stream, if there is one.
  void set_record_state(const Job& job, StreamState state);
  void erase_record(const Job& job);

  // Functions of the thread `reply`, in reply_turns.cc.
  void run();
  void collect();
  void hand_out(RequestOutput&& output);
  void give_turns();
  void end_pauses();
  void turn(const JobPtr& job);
  bool step(Job& job);
  void take(Job& job, size_t index, RequestOutput&& output);
  void add_token(Job& job, size_t index, RequestOutput& output);
  void end_choice(Job& job, size_t index, RequestSummary& summary);
  void send_next(Job& job, size_t index);
  void send_block(Job& job, int choice, const std::string& block);
  void finish(Job& job, const ApiFormat& format);
  void observe_end(const RequestSummary& summary);

  Options options_;
  mutable Mutex mutex_;  // locked after a job's mutex, never before it
  std::unordered_map<RequestId, JobChoice> table_ HOCKET_GUARDED_BY(mutex_);
  EndedTexts ended_;
  std::atomic<bool> stopping_ = false;
  // Lines of jobs: those with new outputs, those that used up a turn, those that another thread had
  // locked when their turn came, and those whose client has to read first. Used by the thread
  // `reply` only.
  std::deque<JobPtr> first_line_, second_line_, locked_, paused_;
  TimePoint pause_end_ = TimePoint::max();  // the first end of a pause in paused_
  Thread thread_;
};

}  // namespace hocket
