// One HTTP request under way. Internal to reply.h.
//
// The lock is held by the thread that works on it: the text thread that begins it, then `reply`,
// which only tries to lock. Members that need no lock say why.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/access/request_memory.h"
#include "server/protocol/answer_text.h"
#include "server/reply.h"
#include "server/wire/sse.h"

namespace hocket {

struct ReplyService::Job {
  Job(const std::shared_ptr<HttpExchange>& to, Answer&& given);

  const Prompt& prompt_of(size_t index) const {
    return answer.request.prompts[static_cast<size_t>(answer.choices[index].prompt)];
  }
  // What is held before the first token, besides Answer::held.
  int64_t bytes_at_begin() const;
  // Counts what this choice holds by now. Errors: those of RequestMemory::take.
  Result<void> count(size_t index);
  // Where the client was told that it is accepted, the request is under way until here.
  void end_meter() const;

  std::mutex mutex;
  std::shared_ptr<HttpExchange> exchange;  // null: no client waits (AnswerForm::accepted)
  std::optional<SseWriter> stream;
  Answer answer;                      // request, prompts and what names it never change
  std::vector<AnswerText> texts;      // beside answer.choices
  std::vector<RequestId> ids;         // beside answer.choices; never change
  std::vector<TimePoint> last_token;  // beside answer.choices
  size_t num_ended = 0;
  std::optional<size_t> telling;  // the choice whose last output is not all sent yet
  bool over = false;              // answered, or the client has left
  HeldBytes held;
  int64_t bytes = 0;                        // of `held`, in use
  std::vector<int64_t> bytes_of;            // beside answer.choices: their parts of it
  std::vector<std::atomic<int>> generated;  // beside answer.choices: tokens.   Thread: any

  // Of the thread `reply`, without the lock.
  struct News {
    size_t choice;
    RequestOutput output;
  };
  void add_news(size_t choice, RequestOutput&& output);
  std::deque<News> news;  // not yet looked at
  HeldBytes held_news;
  size_t room_for_news = 0;      // that held_news has
  std::optional<Error> refused;  // why it has no more
  bool news_lost = false;
  bool in_line = false;
};

}  // namespace hocket
