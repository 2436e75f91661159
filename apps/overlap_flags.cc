#include "apps/flags.h"

namespace hocket {

FlagGroup overlap_flags(ServerSettings& s) {
  ParallelSettings& p = s.parallel;
  return {
      "Overlap",
      {{"overlap", &p.overlap,
        "how computing hides transfers between ranks: auto (the default, chosen by measuring), "
        "none, single-batch, two-batch, or an order by name",
        "", true},
       {"overlap-order-prefill", &p.overlap_order_prefill,
        "--overlap of steps with prompts, if it differs", "", true},
       {"overlap-order-decode", &p.overlap_order_decode,
        "--overlap of steps of answers alone, if it differs", "", true},
       {"overlap-plan", &p.overlap_plan,
        "YAML file of further orders; the first is used unless --overlap says otherwise", "", true},
       {"enable-two-batch-overlap", &p.enable_two_batch_overlap,
        "--overlap two-batch: begins with SGLang's orders, and plays a faster one of two halves "
        "once "
        "it was measured",
        "", true},
       {"enable-single-batch-overlap", &p.enable_single_batch_overlap, "--overlap single-batch", "",
        true},
       {"tbo-token-distribution-threshold", &p.tbo_token_distribution_threshold,
        "a sequence is split between the two halves if whole sequences would leave one of them "
        "less than this share of the tokens; 0: never",
        ""}}};
}

}  // namespace hocket
