#include "apps/flags.h"

namespace hocket {

FlagGroup speculation_flags(ServerSettings& s) {
  return {
      "Speculation",
      {{"speculative-algorithm", &s.speculation.algorithm,
        "guesses of the next tokens, checked with the next one: NGRAM (from the request's own "
        "text), NEXTN (by the model's own module for multi-token prediction), auto (both, for each "
        "answer the better one, if the model has a module; else NGRAM), or none; EAGLE is NEXTN; "
        "answers stay the same",
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
