#include "engine/prepare.h"

namespace hocket {
namespace {

void add_rows(const Slice& slice, int page_tokens, ForwardBatch& forward) {
  const Request& request = *slice.request;
  const int row_begin = forward.num_rows();
  for (int i = slice.begin; i < slice.begin + slice.len; ++i) {
    const PageId page = request.pages[i / page_tokens];
    const int offset = i % page_tokens;
    forward.ids.push_back(request.tokens[i]);
    forward.positions.push_back(i);
    forward.slots.push_back({page, offset});
    if (offset == 0) forward.fresh_pages.push_back(page);
  }
  forward.sequences.push_back({.row_begin = row_begin,
                               .num_rows = slice.len,
                               .first_position = slice.begin,
                               .pages = request.pages});
}

}  // namespace

void prepare(const Batch& batch, int page_tokens, ForwardBatch& forward,
             std::vector<OutputRow>& outputs) {
  forward.clear();
  outputs.clear();
  forward.mode = batch.mode;
  for (const PageCopy& copy : batch.copies) forward.copies.push_back({copy.from, copy.to});
  for (int s = 0; s < std::ssize(batch.slices); ++s) {
    const Slice& slice = batch.slices[s];
    const int row_begin = forward.num_rows();
    add_rows(slice, page_tokens, forward);
    const int last = slice.begin + slice.len - 1;
    const bool logprobs = slice.logprobs_from >= 0;
    for (int i = logprobs ? slice.logprobs_from : last; i <= last; ++i) {
      // The last prompt token's row has no prompt token after it; it only samples.
      const bool reports = logprobs && i + 1 < slice.request->prompt_len;
      const bool samples = slice.samples && i == last;
      if (!reports && !samples) continue;
      forward.output_rows.push_back(row_begin + (i - slice.begin));
      outputs.push_back({.slice = s, .token = i, .samples = samples, .reports = reports});
    }
  }
}

}  // namespace hocket
