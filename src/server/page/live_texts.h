// Answers as who watches the server sees them: sizes and times, never a word of a prompt or of an
// answer.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/answer.h"

namespace hocket {

// One that is under way.
struct LiveText {
  RequestId request{};
  std::string id;  // the answer's
  int index = 0;   // of the choice
  std::string_view api;
  bool stream = false;
  int prompt_tokens = 0, generated_tokens = 0, max_tokens = 0;
  TimePoint received{};
  bool has_begun = false;  // a token came
};
// Reads only members of `answer` that never change.
LiveText live_text(const Answer& answer, size_t choice, RequestId request, int generated_tokens);

// One that ended.
struct EndedText {
  uint64_t number = 0;  // rises by one with each; 1 is the first
  std::string id;
  int index = 0;
  std::string_view api;
  FinishReason finish = FinishReason::none;
  int rank = 0;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, num_retractions = 0;
  TimePoint received{}, first_token{}, ended{};  // first_token: none came: unset
  RequestTimes times;
};

// The newest of them.
class EndedTexts {
 public:
  static constexpr size_t kKept = 64;

  // `summary`: the last that was heard of the choice.   Thread: one at a time.
  void note(const Answer& answer, size_t choice, const RequestSummary& summary);
  // Oldest first.   Thread: any.
  std::vector<EndedText> look() const;

 private:
  mutable std::mutex mutex_;
  std::array<EndedText, kKept> texts_;
  uint64_t num_ended_ = 0;
};

}  // namespace hocket
