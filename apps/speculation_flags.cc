#include "apps/flags.h"

namespace hocket {

FlagGroup speculation_flags(ServerSettings& s) {
  return {
      "Speculation",
      {{"speculative-algorithm", &s.speculation.algorithm,
        "guesses of the next tokens, which change no answer: NGRAM (from the request's own text), "
        "NEXTN or EAGLE (by the model's own module), auto (for each answer the better one that "
        "there is), none",
        "", true},
       {"speculative-num-steps", &s.speculation.num_steps,
        "guesses of each answer in a step, 8 at most; 0: as many as pay, by measured times", "",
        true},
       {"speculative-num-draft-tokens", &s.speculation.num_draft_tokens,
        "number of those guesses plus 1, for the token before them; 0: not given", "", true},
       {"speculative-eagle-topk", &s.speculation.eagle_topk,
        "guesses for one position: 1, since the guesses of an answer are one chain; 0: not given",
        ""}}};
}

}  // namespace hocket
