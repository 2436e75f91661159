// One HTTP request under way. Internal to reply.h.
//
// The thread that works on it holds its mutex: first the text thread that begins it, then the
// thread `reply`, which never waits for the lock if it can avoid it. Members that need no lock say
// so.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/generation/answer_text.h"
#include "server/http/sse.h"
#include "server/reply/client_rest.h"
#include "server/reply/reply.h"
#include "server/reply/stream_position.h"
#include "server/usage/request_memory.h"

namespace hocket {

// The outputs of one job that wait for its turn.   Thread: `reply`.
class PendingOutputs {
 public:
  struct Output {
    size_t choice;
    RequestOutput output;
  };
  explicit PendingOutputs(std::shared_ptr<RequestMemory> memory) : held_(std::move(memory)) {}

  // Adds an output of `bytes`, or none if the request may hold no more memory (refused()).
  void add(size_t choice, RequestOutput&& output, int64_t bytes);
  bool empty() const { return outputs_.empty(); }
  Output take_first();
  void clear() { outputs_.clear(); }
  const std::optional<Error>& refused() const { return refused_; }
  // Notes that an allocation failed; the next turn fails the job.
  void set_lost() { lost_ = true; }
  bool lost() const { return lost_; }

 private:
  std::deque<Output> outputs_;
  HeldBytes held_;
  size_t num_counted_ = 0;  // number of outputs that held_ covers
  std::optional<Error> refused_;
  bool lost_ = false;
};

struct ReplyService::Job {
  Job(const std::shared_ptr<HttpExchange>& to, PreparedRequest&& prepared,
      std::shared_ptr<RequestRecorder> given_recorder);

  const Prompt& prompt_of(size_t index) const {
    return answer.prepared.request.prompts[static_cast<size_t>(answer.choices[index].prompt)];
  }
  // Returns the bytes that the answer holds before its first token, besides
  // PreparedRequest::held.
  int64_t bytes_at_begin() const;
  // Returns the bytes of one output of a choice while it waits for the job's turn.
  int64_t pending_bytes(size_t choice) const;
  // Counts the bytes of this choice in the request's memory. Errors: those of RequestMemory::take.
  Result<void> count(size_t index);
  // Returns the tokens of a choice that need not be computed again: those that the client has,
  // without the last, so that the answer ends as it would. None if its log-probabilities or experts
  // are asked for, which only computing gives.
  std::vector<TokenId> known_answer(size_t index, int vocab_size) const;
  // While more bytes wait for the client, blocks that a later one repeats are left out.
  static constexpr size_t kMaxWaiting = 64 << 10;
  // Returns true if the client reads more slowly than its stream is made again. Its known tokens
  // come at once, so without a wait it would count as too slow.
  bool waits_for_client() const;
  // Returns true if the client has the block that was just made, of a choice or kClosingBlock.
  bool was_sent(int choice);
  // Returns the block as events, numbered, without those that the client has (`has`).
  std::string events_of(int choice, const std::string& block);
  // Returns the events behind a line that tells the progress.
  std::string with_progress(int choice, const std::string& events);
  // Ends the request's meter if the client was answered when the request was accepted
  // (HttpExchange::leave_meter). Otherwise the exchange ends it.
  void end_meter() const;

  Mutex mutex;
  std::shared_ptr<HttpExchange> exchange;  // null: no client waits (ApiFormat::accepted)
  std::optional<SseWriter> stream;
  Answer answer;
  std::vector<WrittenChoice> written;         // one for each of answer.choices
  std::shared_ptr<RequestRecorder> recorder;  // null: nothing is observed
  std::vector<AnswerText> texts;              // one for each of answer.choices
  std::vector<RequestId> ids;                 // one for each of answer.choices; never change
  std::vector<TimePoint> last_token;          // one for each of answer.choices
  size_t num_ended = 0;
  std::optional<AnswerProgress> sent;  // by a rank that was lost; nullopt: the answer begins here
  std::vector<size_t> num_told;        // one per choice: ids whose progress was told
  std::vector<uint32_t> next_event;    // one per choice: the number of its next event
  // The events that a client has that came back with its place in the stream; nullopt: no client
  // came back.
  std::optional<StreamPosition> has;
  std::optional<size_t> sending;  // the choice whose last output is not fully sent
  bool over = false;              // true: answered, or the client has left
  HeldBytes held;
  int64_t bytes = 0;                        // bytes in use; `held` grows in larger steps
  std::vector<int64_t> bytes_of;            // one per choice: its part of `bytes`
  std::vector<std::atomic<int>> generated;  // one per choice: tokens.   Thread: any

  // Only the thread `reply` uses the members below, without the lock.
  PendingOutputs pending;
  bool in_line = false;  // in one of the service's lines
  ClientRest rest;       // while waits_for_client()
};

}  // namespace hocket
