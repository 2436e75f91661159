// The metrics once more under the names of other servers, so that boards made for those work.
// Thread: any.
#pragma once

#include <prometheus/metric_family.h>

#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

struct MetricCompat {
  bool sglang = false, vllm = false;
};
// "", "sglang", "vllm" or both with a comma between. Errors: bad_value.
Result<MetricCompat> parse_metric_compat(std::string_view names);

// Adds the aliases of what is there. Values and buckets are the same; labels those of the other
// server, as far as we have them: of vLLM's `model_name` and `engine`, the rank.
void add_aliases(std::vector<prometheus::MetricFamily>& families, MetricCompat compat);

}  // namespace hocket
