// One HTTP request under way. Inside of reply.h.
//
// Its lock is held by whoever works on it: the text thread that begins it, then the thread `reply`,
// which never waits for it. What says so is the thread's alone, or never changes.
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

  std::mutex mutex;
  std::shared_ptr<HttpExchange> exchange;  // null: nobody waits for it (AnswerForm::accepted)
  std::optional<SseWriter> stream;
  Answer answer;                      // request, prompts and what names it never change
  std::vector<AnswerText> texts;      // beside answer.choices
  std::vector<RequestId> ids;         // beside answer.choices; never change
  std::vector<TimePoint> last_token;  // beside answer.choices
  size_t num_ended = 0;
  std::optional<size_t> telling;  // the choice whose news are not told to the end
  bool over = false;              // answered, or nobody listens any more
  HeldBytes held;
  int64_t bytes = 0;                        // of it in use
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
