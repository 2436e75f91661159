// One HTTP request under way, as the thread `reply` works on it.
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
#include "engine/engine.h"
#include "server/generation/answer_text.h"
#include "server/http/sse.h"
#include "server/reply/answer_progress.h"
#include "server/reply/client_pause.h"
#include "server/reply/stream_position.h"
#include "server/usage/request_memory.h"

namespace hocket {

class RequestRecorder;

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
  void set_out_of_memory() { out_of_memory_ = true; }
  bool out_of_memory() const { return out_of_memory_; }

 private:
  std::deque<Output> outputs_;
  HeldBytes held_;
  size_t num_counted_ = 0;  // number of outputs that held_ covers
  std::optional<Error> refused_;
  bool out_of_memory_ = false;
};

struct ReplyJob {
  ReplyJob(const std::shared_ptr<HttpExchange>& to, PreparedRequest&& prepared,
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
  // are ready at once, so without a wait it would count as too slow.
  bool waits_for_client() const;
  // Returns true if the client has the block that was just made, of a choice or kClosingBlock.
  bool was_sent(int choice);
  // Returns the block as events, numbered, without those that the client has.
  std::string events_of(int choice, const std::string& block);
  // Returns the events behind a line with the progress.
  std::string with_progress(int choice, const std::string& events);
  // Ends the request's meter if the client was answered when the request was accepted
  // (HttpExchange::outlive_answer). Otherwise the exchange ends it.
  void end_meter() const;

  // The part of the job that belongs to one choice of the answer.
  struct ChoiceState {
    ChoiceState(const Answer& answer, size_t index)
        : id(Engine::next_request_id()), text(answer, index) {}

    const RequestId id;
    AnswerText text;
    TimePoint last_token{};
    size_t num_ids_sent = 0;             // ids whose progress was sent
    int64_t bytes = 0;                   // its part of ReplyJob::bytes
    std::atomic<int> num_generated = 0;  // tokens.   Thread: any
  };

  Mutex mutex;
  std::shared_ptr<HttpExchange> exchange;  // null: no client waits (ApiFormat::accepted)
  std::optional<SseWriter> stream;
  Answer answer;
  // These three have one element for each of answer.choices.
  std::deque<ChoiceState> of_choice;  // its number of elements never changes
  std::vector<WrittenChoice> written;
  std::vector<uint32_t> next_event;           // the number of the choice's next event
  std::shared_ptr<RequestRecorder> recorder;  // null: nothing is observed
  size_t num_ended = 0;
  // The part that a rank sent before it was lost; nullopt: the answer begins here.
  std::optional<AnswerProgress> sent_before_loss;
  // The position up to which a client that reconnected has the stream; nullopt: no client has.
  std::optional<StreamPosition> client_has;
  std::optional<size_t> sending;  // the choice whose last output is not fully sent
  bool is_over = false;           // true: answered, or the client has left
  HeldBytes held;
  int64_t bytes = 0;  // bytes in use; `held` grows in larger steps

  // Only the thread `reply` uses the members below, without the lock.
  PendingOutputs pending;
  bool in_line = false;  // in one of the lines of ReplyTurns
  ClientPause pause;     // while waits_for_client()
};

// Aborts all choices of the job.   Thread: any; needs no lock.
void abort_all_of(Engine& engine, const ReplyJob& job);

}  // namespace hocket
