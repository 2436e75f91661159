// Answers as the page shows them: sizes and times, never text of a prompt or an answer.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "server/generation/answer.h"

namespace hocket {

// One choice that is under way.
struct LiveText {
  RequestId request{};
  std::string id;  // the answer's id
  int index = 0;   // the choice's index in the answer
  std::string_view api;
  bool stream = false;
  int prompt_tokens = 0, generated_tokens = 0, max_tokens = 0;
  TimePoint received{};
  bool has_begun = false;  // true: at least one token was sampled
};
// Builds the entry. Reads only members of `answer` that never change.
LiveText live_text(const Answer& answer, size_t choice, RequestId request, int generated_tokens);

// One choice that ended.
struct EndedText {
  uint64_t number = 0;  // 1 for the first choice that ended, then rising by 1
  std::string id;
  int index = 0;
  std::string_view api;
  FinishReason finish = FinishReason::none;
  int rank = 0;
  int prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, num_retractions = 0;
  TimePoint received{}, first_token{}, ended{};  // first_token is unset if no token was sampled
  RequestTimes times;
};

// Keeps the kKept choices that ended last.
class EndedTexts {
 public:
  static constexpr size_t kKept = 64;

  // Adds the choice. `summary` is what the engine reported at its end.   Thread: one at a time.
  void note(const Answer& answer, size_t choice, const RequestSummary& summary);
  // Returns the choices, oldest first.   Thread: any.
  std::vector<EndedText> texts() const;

 private:
  mutable Mutex mutex_;
  std::array<EndedText, kKept> texts_ HOCKET_GUARDED_BY(mutex_);
  uint64_t num_ended_ HOCKET_GUARDED_BY(mutex_) = 0;
};

}  // namespace hocket
