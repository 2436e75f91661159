#include "apps/flags.h"

namespace hocket {

FlagGroup speculation_flags(ServerSettings& s) {
  return {
      "Speculation",
      {{"speculative-algorithm", &s.speculation.algorithm,
        "source of drafts, which change no answer: NGRAM (the request's own text), NEXTN or EAGLE "
        "(the model's MTP module), auto (for each answer the better one of those), none",
        "", true},
       {"speculative-num-steps", &s.speculation.num_steps,
        "drafts of each answer in a step, 8 at most; 0: chosen by measured times", "", true},
       {"speculative-num-draft-tokens", &s.speculation.num_draft_tokens,
        "--speculative-num-steps plus 1, as SGLang counts; 0: not given", "", true},
       {"speculative-eagle-topk", &s.speculation.eagle_topk,
        "guesses for one position: 1, since the guesses of an answer are one chain; 0: not given",
        ""}}};
}

}  // namespace hocket
