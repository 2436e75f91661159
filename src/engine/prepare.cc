#include "engine/prepare.h"

#include <algorithm>

namespace hocket {
namespace {

void add_rows(const Slice& slice, const PrepareOptions& options, ForwardBatch& forward) {
  const int page_tokens = options.page_tokens;
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
  add_sequence({.row_begin = row_begin,
                .begin = slice.begin,
                .end = slice.begin + slice.len,
                .prompt_len = request.prompt_len,
                .pages = request.pages},
               options.prompt_role, forward);
}

}  // namespace

void add_sequence(const SequenceRows& rows, TokenRole prompt_role, ForwardBatch& forward) {
  //  tokens   begin ---- prompt ----|-- generated -- end
  const int cut = std::clamp(rows.prompt_len, rows.begin, rows.end);
  const auto add = [&](int begin, int end, TokenRole role) {
    if (begin == end) return;
    forward.sequences.push_back({.row_begin = rows.row_begin + (begin - rows.begin),
                                 .num_rows = end - begin,
                                 .first_position = begin,
                                 .role = role,
                                 .pages = rows.pages});
  };
  add(rows.begin, cut, prompt_role);
  add(cut, rows.end, TokenRole::generated);
}

void prepare(const Batch& batch, const PrepareOptions& options, ForwardBatch& forward,
             std::vector<OutputRow>& outputs) {
  forward.clear();
  outputs.clear();
  forward.mode = batch.mode;
  for (const PageCopy& copy : batch.copies) forward.copies.push_back({copy.from, copy.to});
  for (int s = 0; s < std::ssize(batch.slices); ++s) {
    const Slice& slice = batch.slices[s];
    const int row_begin = forward.num_rows();
    add_rows(slice, options, forward);
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
