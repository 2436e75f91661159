#include "engine/prepare.h"

#include <algorithm>

#include "base/check.h"
#include "policy/cache/page_allocator.h"

namespace hocket {
namespace {

size_t num_pages(const Slice& slice, int page_tokens) {
  return static_cast<size_t>(pages_for(slice.begin + slice.len, page_tokens));
}

void clear(Flight& flight) {
  flight.forward.clear();
  flight.pages.clear();
  flight.pending_rows.clear();
  flight.samples.clear();
  flight.prompt_rows.clear();
  flight.row_begins.clear();
  flight.wants_routed = false;
}

bool has_windows(const PrepareOptions& options) {
  return options.unseen_page != kNoPage;
}

// Reserves the list before spans into it are made, so that they stay valid.
void make_room_for_pages(const Batch& batch, const PrepareOptions& options,
                         std::vector<PageId>& pages) {
  size_t needed = 0;
  for (const Slice& slice : batch.slices) needed += num_pages(slice, options.page_tokens);
  if (has_windows(options)) needed *= 2;
  if (needed > pages.capacity()) pages.reserve(2 * needed);
}

std::span<const PageId> copy_pages(const Slice& slice, int page_tokens, Flight& flight) {
  const auto from = std::span(slice.request->pages).first(num_pages(slice, page_tokens));
  const size_t at = flight.pages.size();
  flight.pages.insert(flight.pages.end(), from.begin(), from.end());
  return std::span(flight.pages).subspan(at);
}

// Copies the list of the window layers' pages. Their kernels read some pages before the first token
// that a row sees, and ignore what is there if it is finite.
std::span<const PageId> copy_window_pages(const Slice& slice, const PrepareOptions& options,
                                          Flight& flight) {
  if (!has_windows(options)) return {};
  const auto from =
      std::span(slice.request->window.pages).first(num_pages(slice, options.page_tokens));
  const size_t at = flight.pages.size();
  for (const PageId page : from)
    flight.pages.push_back(page == kNoPage ? options.unseen_page : page);
  return std::span(flight.pages).subspan(at);
}

// Adds where the slice's states are. The list of slots has room for all, so the spans stay valid.
void add_states(const Slice& slice, int row_begin, ForwardBatch& forward) {
  const auto states = std::span(slice.states).first(static_cast<size_t>(slice.num_states));
  std::vector<StateSlot>& all = forward.state_slots;
  HOCKET_CHECK(all.capacity() - all.size() >= states.size());
  const size_t at = all.size();
  all.insert(all.end(), states.begin(), states.end());
  forward.delta.push_back({.row_begin = row_begin,
                           .num_rows = slice.len,
                           .first_position = slice.begin,
                           .block = slice.block,
                           .load_state_at = slice.load_state_at,
                           .states = std::span(all).subspan(at)});
}

void add_rows(int index, const PrepareOptions& options, Flight& flight) {
  const Slice& slice = flight.batch->slices[static_cast<size_t>(index)];
  const int page_tokens = options.page_tokens;
  const Request& request = *slice.request;
  ForwardBatch& forward = flight.forward;
  const int row_begin = forward.num_rows();
  flight.row_begins[static_cast<size_t>(index)] = row_begin;
  const std::span<const PageId> pages = copy_pages(slice, page_tokens, flight);
  const std::span<const PageId> window_pages = copy_window_pages(slice, options, flight);
  for (int i = slice.begin; i < slice.begin + slice.len; ++i) {
    const PageId page = pages[i / page_tokens];
    const int offset = i % page_tokens;
    forward.ids.push_back(slice.pending_sample < 0 ? slice.token(i) : TokenId{0});
    forward.positions.push_back(i);
    forward.slots.push_back({page, offset});
    if (offset == 0) forward.fresh_pages.push_back(page);
    if (window_pages.empty()) continue;
    forward.window_slots.push_back({window_pages[i / page_tokens], offset});
    if (offset == 0) forward.fresh_window_pages.push_back(window_pages[i / page_tokens]);
  }
  add_sequence({.row_begin = row_begin,
                .begin = slice.begin,
                .end = slice.begin + slice.len,
                .prompt_len = request.prompt_len,
                .pages = pages,
                .window_pages = window_pages,
                .form_borders = request.form_borders},
               options.prompt_form, forward);
  if (slice.block >= 0) add_states(slice, row_begin, forward);
}

// Returns the rows of a slice, with the keys that they read together.
PackedAnswer packed(const Slice& slice) {
  const int64_t len = slice.len;
  return {.rows = slice.len, .keys = len * slice.begin + len * (len + 1) / 2};
}

// Puts prompts between the answers of the two halves, so that a cut in the middle gives each half
// its part of both, and no answer is cut.
//
//   rows   answers, first half | prompts ....:.... | answers, second half
//                                       cut somewhere here
void add_packed_rows(const PrepareOptions& options, Flight& flight) {
  const Batch& batch = *flight.batch;
  const int num_slices = static_cast<int>(batch.slices.size());
  const int num_prompts = num_slices - batch.num_answers();
  flight.answers.clear();
  for (int i = num_prompts; i < num_slices; ++i)
    flight.answers.push_back(packed(batch.slices[static_cast<size_t>(i)]));
  const auto counts = num_prompts > 0 ? HalfPacker::Counts::by_share : HalfPacker::Counts::free;
  flight.packer.pack(flight.answers, *options.packing, counts);
  const auto add_answers = [&](bool of_first) {
    for (int i = num_prompts; i < num_slices; ++i)
      if (flight.packer.in_first(i - num_prompts) == of_first) add_rows(i, options, flight);
  };
  add_answers(true);
  const int first = flight.forward.num_rows();
  for (int i = 0; i < num_prompts; ++i) add_rows(i, options, flight);
  flight.forward.half_borders = {.first = first, .last = flight.forward.num_rows()};
  add_answers(false);
}

void add_all_rows(const PrepareOptions& options, Flight& flight) {
  const int num_slices = static_cast<int>(flight.batch->slices.size());
  flight.row_begins.resize(flight.batch->slices.size());
  if (options.packing && flight.batch->num_answers() > 0) return add_packed_rows(options, flight);
  for (int i = 0; i < num_slices; ++i) add_rows(i, options, flight);
}

// Returns how many forced tokens the request may take behind a row that has `num_drafts` drafts
// before it.
int max_forced(const Request& request, int num_drafts, const PrepareOptions& options) {
  const SamplingParams& params = request.sampling;
  if (!may_force(params)) return 0;
  const int remaining = params.max_new_tokens - request.generated() - num_drafts - 1;
  return std::min(options.max_forced, remaining);
}

// Adds the rows whose logits are needed, for prompt logprobs or to sample. The last prompt token
// has no prompt token after it: its row only samples.
void add_outputs(const Slice& slice, int row_begin, const PrepareOptions& options, Flight& flight) {
  const Request& request = *slice.request;
  const auto tokens = std::span<const TokenId>(request.tokens);
  const SamplingParams& params = request.sampling;
  const int last = slice.begin + slice.len - 1;
  const bool logprobs = slice.logprobs_from >= 0;
  for (int i = logprobs ? slice.logprobs_from : last - slice.num_drafts; i <= last; ++i) {
    const bool reports = logprobs && i + 1 < request.prompt_len;
    const int num_drafts = i - (last - slice.num_drafts);  // up to this row
    const bool samples = slice.is_sampled && num_drafts >= 0;
    if (!reports && !samples) continue;
    const int output = static_cast<int>(flight.forward.output_rows.size());
    flight.forward.output_rows.push_back(row_begin + (i - slice.begin));
    if (reports)
      flight.prompt_rows.push_back({.request = request.id,
                                    .index = i + 1 - params.prompt_logprobs_from,
                                    .token = tokens[i + 1],
                                    .num_top = std::max(params.num_top_logprobs, 0),
                                    .output = output,
                                    .found = {}});
    if (!samples) continue;
    const auto newer = slice.pending_sample >= 0
                           ? std::span<const TokenId>(flight.forward.ids).subspan(row_begin, 1)
                           : std::span<const TokenId>(slice.drafts).first(num_drafts);
    flight.samples.push_back(
        {.logits_row = output,
         .params = &params,
         .prompt = tokens.first(request.prompt_len),
         .generated = tokens.subspan(request.prompt_len),
         .newer = newer,
         .draft = i < last ? slice.token(i + 1) : TokenId{-1},
         .end_ids = params.ignore_eos ? std::span<const TokenId>() : options.eos_ids,
         .grammar = params.grammar == nullptr ? nullptr : options.grammars->find(request),
         .max_forced = max_forced(request, num_drafts, options)});
  }
}

}  // namespace

bool may_force(const SamplingParams& params) {
  return params.grammar != nullptr && params.num_top_logprobs < 0 && params.allowed_ids.empty() &&
         !params.return_routed_experts;
}

void add_sequence(const SequenceRows& rows, MlaForm prompt_form, ForwardBatch& forward) {
  //  tokens   begin ---- prompt ---|--- absorbed ---|----|-- generated -- end
  const int cut = std::clamp(rows.prompt_len, rows.begin, rows.end);
  const auto add = [&](int begin, int end, MlaForm form) {
    if (begin == end) return;
    forward.sequences.push_back({.row_begin = rows.row_begin + (begin - rows.begin),
                                 .num_rows = end - begin,
                                 .first_position = begin,
                                 .form = form,
                                 .pages = rows.pages});
    if (!rows.window_pages.empty()) forward.window_pages.push_back(rows.window_pages);
  };
  auto border = std::ranges::upper_bound(rows.form_borders, rows.begin);
  for (int begin = rows.begin; begin < cut;) {
    const bool absorbed = (border - rows.form_borders.begin()) % 2 == 1;
    const int end = border == rows.form_borders.end() ? cut : std::min(*border++, cut);
    add(begin, end, absorbed ? MlaForm::absorbed : prompt_form);
    begin = end;
  }
  add(cut, rows.end, MlaForm::absorbed);
}

void prepare(const Batch& batch, const PrepareOptions& options, Flight& flight) {
  clear(flight);
  flight.batch = &batch;
  flight.forward.mode = batch.mode;
  for (const PageCopy& copy : batch.copies) {
    flight.forward.copies.push_back({copy.from, copy.to});
    if (has_windows(options))
      flight.forward.window_copies.push_back({copy.window_from, copy.window_to});
  }
  make_room_for_pages(batch, options, flight.pages);
  add_all_rows(options, flight);
  for (size_t i = 0; i < batch.slices.size(); ++i) {
    const Slice& slice = batch.slices[i];
    const int row_begin = flight.row_begins[i];
    flight.wants_routed |= slice.request->sampling.return_routed_experts;
    add_outputs(slice, row_begin, options, flight);
    if (slice.pending_sample < 0) continue;
    HOCKET_CHECK(slice.len == 1);
    flight.pending_rows.push_back({.row = row_begin, .index = slice.pending_sample});
  }
}

}  // namespace hocket
