#include "policy/speculation/gate_text.h"

#include <fmt/format.h>

namespace hocket {
namespace {

std::string plural(int64_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string of_choice(const GateChoice& choice) {
  return fmt::format("{} {} {:.2f} tokens an answer in {:.2f} times the time of a step without",
                     plural(choice.num_drafts, "draft"), choice.num_drafts == 1 ? "gives" : "give",
                     choice.tokens, choice.time_ratio);
}

}  // namespace

std::string text_of(const GateState::Bucket& bucket, bool is_fixed) {
  const std::string head = fmt::format(
      "{} of up to {} tokens: ", plural(bucket.num_answers, "answer"), bucket.answer_keys);
  if (is_fixed) return head + "the number of drafts is set by --speculative-num-steps";
  if (bucket.usual.num_drafts > 0) return head + of_choice(bucket.usual);
  if (bucket.best.num_drafts == 0)
    return head +
           "none, because nothing could be drafted, or too few steps without drafts were measured";
  const std::string_view known =
      bucket.best.num_measured > 0 ? "" : ", by an estimate that no step has confirmed";
  const std::string_view gain = bucket.best.tokens > bucket.best.time_ratio
                                    ? "; this gain is too small, or not certain yet"
                                    : "";
  return fmt::format("{}none, because {}{}{}", head, of_choice(bucket.best), known, gain);
}

}  // namespace hocket
