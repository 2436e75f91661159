#include "apps/flags.h"

namespace hocket {

FlagGroup overlap_flags(ServerSettings& s) {
  ParallelSettings& p = s.parallel;
  return {
      "Overlap",
      {{"overlap", &p.overlap,
        "how exchanges between ranks are hidden: auto (the default: measured), none, "
        "single-batch, two-batch, or an order by name",
        "", true},
       {"overlap-order-prefill", &p.overlap_order_prefill,
        "--overlap of steps with prompts, if it differs", "", true},
       {"overlap-order-decode", &p.overlap_order_decode,
        "--overlap of steps of answers alone, if it differs", "", true},
       {"overlap-plan", &p.overlap_plan,
        "YAML file of more orders; the first is played unless --overlap says otherwise", "", true},
       {"enable-two-batch-overlap", &p.enable_two_batch_overlap, "--overlap two-batch", "", true},
       {"enable-single-batch-overlap", &p.enable_single_batch_overlap, "--overlap single-batch", "",
        true},
       {"tbo-token-distribution-threshold", &p.tbo_token_distribution_threshold,
        "a sequence is cut in two where whole ones would leave a half less than this share of "
        "the tokens; 0: never",
        ""}}};
}

}  // namespace hocket
