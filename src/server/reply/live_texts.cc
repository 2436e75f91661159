#include "server/reply/live_texts.h"

#include <utility>

#include "server/generation/api.h"

namespace hocket {
LiveText live_text(const Answer& answer, size_t choice, RequestId request, int generated_tokens) {
  const ChoiceAnswer& c = answer.choices[choice];
  const auto prompt = static_cast<size_t>(c.prompt);
  return {.request = request,
          .id = answer.id,
          .index = c.index,
          .api = answer.request.api->name,
          .stream = answer.request.stream,
          .prompt_tokens = static_cast<int>(answer.prompts[prompt].size()),
          .generated_tokens = generated_tokens,
          .max_tokens = answer.request.prompts[prompt].sampling.max_new_tokens,
          .received = answer.received,
          .has_begun = generated_tokens > 0};
}

void EndedTexts::note(const Answer& answer, size_t choice, const RequestSummary& summary) {
  EndedText ended{.number = 0,
                  .id = answer.id,
                  .index = answer.choices[choice].index,
                  .api = answer.request.api->name,
                  .finish = summary.finish,
                  .rank = summary.rank,
                  .prompt_tokens = summary.prompt_tokens,
                  .cached_tokens = summary.cached_tokens,
                  .generated_tokens = summary.generated_tokens,
                  .num_retractions = summary.num_retractions,
                  .received = answer.received,
                  .first_token = answer.first_token,
                  .ended = RealClock().now(),
                  .times = summary.times};
  const MutexLock lock(mutex_);
  ended.number = ++num_ended_;
  texts_[ended.number % kKept] = std::move(ended);
}

std::vector<EndedText> EndedTexts::texts() const {
  std::vector<EndedText> texts;
  const MutexLock lock(mutex_);
  for (uint64_t i = 1; i <= kKept; ++i)
    if (const EndedText& text = texts_[(num_ended_ + i) % kKept]; text.number != 0)
      texts.push_back(text);
  return texts;
}

}  // namespace hocket
