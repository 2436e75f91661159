// From the generator's tokens to answers on the wire. The thread `reply` drains the outbox: text,
// stop strings, log-probabilities, blocks of streams, whole answers, times, and the ends of them
// all.
//
//   text thread: begin() -> table -> generator ... outbox -> reply thread -> exchange
//
// A client that leaves or is too slow costs nothing more: its requests are aborted at once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/thread.h"
#include "server/generator.h"
#include "server/page/live_texts.h"
#include "server/protocol/answer.h"
#include "server/views/metrics.h"
#include "server/wire/http.h"

namespace hocket {

class ReplyService {
 public:
  struct Options {
    Generator* generator = nullptr;
    Outbox* outbox = nullptr;
    Metrics* metrics = nullptr;  // null: nobody counts
    size_t max_live = 4096;      // texts under way; beyond it begin() answers queue_full
  };
  explicit ReplyService(Options options);
  ~ReplyService();

  // Takes a request whose prompts are tokens and fit, hands it to the generator and answers it, be
  // it with an error.   Thread: any.
  void begin(const std::shared_ptr<HttpExchange>& exchange, Answer answer);
  // Ends what carries this rid (or answer id) with finish_reason "abort", of this principal alone
  // (empty: of all); how many texts.   Thread: any.
  size_t abort(std::string_view rid, std::string_view who = {});
  // Texts under way.   Thread: any.
  size_t num_live() const;
  // The oldest of them, `most` at most; and the newest that ended.   Thread: any.
  std::vector<LiveText> look(size_t most) const;
  std::vector<EndedText> ended() const { return ended_.look(); }
  // Answers what is left with shutting_down and ends the thread. The generator has stopped.
  void stop();

 private:
  struct Job;
  struct Place {
    std::shared_ptr<Job> job;
    size_t choice = 0;
  };

  std::shared_ptr<Job> enter(const std::shared_ptr<HttpExchange>& exchange, Answer answer);
  void forget(const Job& job);
  void abort_all_of(const Job& job);
  void run();
  void take(RequestOutput&& output);
  void add_token(Job& job, size_t index, RequestOutput& output);
  void end_choice(Job& job, size_t index, RequestSummary& summary);
  void send(Job& job, size_t index);
  static bool send_blocks(Job& job, const AnswerForm& form, ChoiceAnswer& choice);
  void fail_job(Job& job, const Error& error);
  void drop_job(Job& job);
  void observe_end(const RequestSummary& summary);

  Options options_;
  mutable std::mutex mutex_;  // of the table alone; taken after a job's
  std::unordered_map<RequestId, Place> table_;
  EndedTexts ended_;
  std::atomic<bool> stopping_ = false;
  Thread thread_;
};

}  // namespace hocket
