// Writes the answers: turns a job's outputs into text, finds stop strings, writes
// log-probabilities, blocks of streams and whole answers, records times, and ends jobs.
// Thread: `reply`, unless stated otherwise. Callers hold the job's lock.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/generation/answer.h"
#include "server/http/http.h"
#include "server/reply/live_texts.h"
#include "server/reply/reply_table.h"
#include "server/reply/stream_records.h"
#include "server/reports/metrics.h"

namespace hocket {

class ReplyWriter {
 public:
  // Number of positions whose log-probabilities one step writes. Other steps write one block, or
  // take one token.
  static constexpr size_t kPositionsAtOnce = 64;

  // All pointers are borrowed.
  struct Options {
    Engine* engine = nullptr;
    ReplyTable* table = nullptr;
    Metrics* metrics = nullptr;               // null: nothing is counted
    StreamRecords* stream_records = nullptr;  // null: no request has a record
  };
  explicit ReplyWriter(const Options& options);

  // Does a small piece of a job's work. Returns false if there was none.
  bool step(ReplyJob& job);
  // Ends the job with the error.   Thread: any.
  void fail_job(ReplyJob& job, const Error& failure);
  // Precondition: inside a catch block. Ends the job with the exception as its error.
  // Thread: any.
  void fail_by_exception(ReplyJob& job);
  // Answers a job that the table did not take with the error. Needs no lock.   Thread: any.
  void refuse(const ReplyJob& job, HttpExchange& exchange, const Error& why);
  // Returns the texts that ended last. Needs no lock.   Thread: any.
  std::vector<EndedText> ended() const { return ended_.texts(); }

 private:
  void drop_job(ReplyJob& job);
  void take(ReplyJob& job, size_t index, RequestOutput&& output);
  void add_token(ReplyJob& job, size_t index, RequestOutput& output);
  void end_choice(ReplyJob& job, size_t index, RequestSummary& summary);
  void send_next(ReplyJob& job, size_t index);
  void send_block(ReplyJob& job, int choice, const std::string& block);
  void finish(ReplyJob& job, const ApiFormat& format);
  void observe_end(const RequestSummary& summary);
  // Change the record of the job's stream, if there is one.
  void set_record_state(const ReplyJob& job, StreamState state);
  void erase_record(const ReplyJob& job);

  const Options options_;
  EndedTexts ended_;
};

}  // namespace hocket
