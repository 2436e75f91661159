#include "policy/scheduler/batch.h"

namespace hocket {

Slice& Batch::add_rows(Request& request, int count) {
  slices.push_back({.request = &request,
                    .begin = request.computed_len,
                    .pending_sample = request.num_pending > 0 ? request.pending_sample : -1});
  lengthen(slices.back(), count);
  return slices.back();
}

void Batch::lengthen(Slice& slice, int count) {
  const Request& request = *slice.request;
  slice.len += count;
  num_rows += count;
  const int end = slice.begin + slice.len;
  slice.is_sampled = end == request.len();
  const int from = std::max(request.logprobs_from(), slice.begin);
  const bool reports = request.logprobs_from() >= 0 && from < std::min(end, request.prompt_len - 1);
  slice.logprobs_from = reports ? from : -1;
}

void Batch::add_drafts(Slice& slice, std::span<const TokenId> guesses) {
  std::ranges::copy(guesses, slice.drafts.begin());
  slice.num_drafts = static_cast<int>(guesses.size());
  slice.len += slice.num_drafts;
  num_rows += slice.num_drafts;
  num_drafts += slice.num_drafts;
}

}  // namespace hocket
