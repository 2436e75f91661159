#include "policy/scheduler/decode_rows.h"

#include <algorithm>

#include "base/check.h"

namespace hocket {

DecodeRows::DecodeRows(const SchedulerOptions& options) : options_(options) {
  answers_.reserve(static_cast<size_t>(options.max_running_requests) + 1);
}

int DecodeRows::num_rows(Requests requests) const {
  int num_answers = 0, rows = 0;
  for (const auto& request : requests) {
    if (!request->decodes()) continue;
    ++num_answers;
    rows += request->uncomputed();
  }
  return std::max(num_answers, std::min(rows, options_.max_decode_rows));
}

// The slices of answers with several rows come first, then those with one row, each in the order of
// the requests.
void DecodeRows::add(Requests requests, bool may_draft, Batch& batch, KvMemory& memory) {
  const size_t num_prompts = batch.slices.size();
  list(requests, may_draft, memory);
  if (options_.hooks != nullptr && !answers_.empty())
    options_.hooks->offer_drafts(answers_,
                                 {.max_rows = options_.max_decode_rows - num_rows(requests),
                                  .has_prompts = num_prompts > 0});
  add_multirow_slices(requests, batch, memory);
  batch.num_multirow_slices = static_cast<int>(batch.slices.size() - num_prompts);
  size_t next = num_prompts;  // next slice with several rows
  const size_t end = batch.slices.size();
  for (const auto& request : requests) {
    if (next < end && batch.slices[next].request == request.get())
      ++next;
    else if (request->decodes())
      memory.take_pages(batch.add_rows(*request, 1));
  }
  if (batch.slices.empty()) return;
  batch.num_decode_rows = static_cast<int>(batch.slices.size() - end);
  batch.mode = num_prompts == 0          ? ForwardMode::decode
               : batch.num_answers() > 0 ? ForwardMode::mixed
                                         : ForwardMode::extend;
}

// Lists the answers with rows in this step, and how many drafts each may have.
void DecodeRows::list(Requests requests, bool may_draft, const KvMemory& memory) {
  answers_.clear();
  for (const auto& request : requests)
    if (request->decodes()) answers_.push_back({.request = request.get(), .rows = 1});
  if (answers_.empty()) return;
  const int num_rows = this->num_rows(requests);
  int spare = num_rows - static_cast<int>(answers_.size());
  for (AnswerDrafts& answer : answers_) {
    const int wanted = answer.request->uncomputed(), more = std::min(spare, wanted - 1);
    answer.rows += more;
    spare -= more;
    if (may_draft && answer.rows == wanted) answer.max_drafts = max_drafts(*answer.request, memory);
  }
}

// Returns how many drafts the request may have:
// - so few that, if all hold, the token after them is at most its last one;
// - so few that every answer finds a page for its next row, so drafts cost no request its pages;
// - so few that no state is made of drafts.
int DecodeRows::max_drafts(const Request& request, const KvMemory& memory) const {
  if (options_.hooks == nullptr) return 0;
  const int end = request.len();
  const int spare_pages = memory.num_takeable_pages() - static_cast<int>(answers_.size());
  const int64_t num_pages = std::ssize(request.pages) + std::max(0, spare_pages);
  const int64_t in_pages = std::min<int64_t>(num_pages * options_.page_tokens - end, kMaxDrafts);
  return std::max(0, std::min({static_cast<int>(in_pages), request.remaining_new_tokens() - 1,
                               memory.states.rows_before_border(end),
                               memory.windows.max_rows() - request.uncomputed()}));
}

// Drafts take pages, so the next answer may get fewer than expected.
void DecodeRows::add_multirow_slices(Requests requests, Batch& batch, KvMemory& memory) {
  const int num_rows_before = batch.num_rows;
  int spare = options_.max_decode_rows - num_rows(requests);
  auto answer = answers_.begin();
  for (const auto& request : requests) {
    if (!request->decodes()) continue;
    const auto [_, rows, most, wanted, are_predicted] = *answer++;
    HOCKET_CHECK(std::ssize(wanted) <= most);
    const int count =
        std::min({static_cast<int>(wanted.size()), spare, max_drafts(*request, memory)});
    if (rows == 1 && count == 0) continue;
    Slice& slice = batch.add_rows(*request, rows);
    batch.add_drafts(slice, wanted.first(static_cast<size_t>(count)));
    memory.take_pages(slice);
    slice.are_predicted = are_predicted;
    spare -= slice.num_drafts;
  }
  batch.num_multirow_rows = batch.num_rows - num_rows_before;
}

}  // namespace hocket
