#include "engine/module_drafter.h"

#include <algorithm>

#include "engine/prepare.h"
#include "policy/cache/page_allocator.h"

namespace hocket {

ModuleDrafter::ModuleDrafter(Runner& runner, int num_seats, int num_drafts)
    : runner_(runner),
      num_drafts_(num_drafts),
      num_modules_(runner.info().model.num_mtp_loaded),
      page_tokens_(runner.info().page_tokens),
      rows_(runner.info().num_pages, page_tokens_),
      followed_(static_cast<size_t>(num_seats)),
      stats_(static_cast<size_t>(runner.plan().work.max_logits_rows)) {
  HOCKET_CHECK(num_modules_ > 0);
  HOCKET_CHECK((num_drafts >= num_modules_ && num_drafts <= kMaxDrafts));
  HOCKET_CHECK((!runner.info().model.local_mtp || num_drafts == num_modules_));
  const int max_rows = runner.plan().work.max_rows;
  for (ModulePasses& passes : passes_) passes.rows.reserve(followed_.size());
  drafting_.reserve(followed_.size());
  drafting_pages_.reserve(static_cast<size_t>(runner.info().num_pages));
  batch_.reserve(max_rows, 2 * num_seats);
  hidden_rows_.reserve(static_cast<size_t>(max_rows));
}

void ModuleDrafter::begin(int seat, int /*max_len*/) {
  followed_[static_cast<size_t>(seat)] = {};
}

void ModuleDrafter::draft(std::span<DraftTask> tasks) {
  for (DraftTask& task : tasks) {
    const Followed& followed = followed_[static_cast<size_t>(task.seat)];
    const bool fits = followed.num_tokens == task.tokens.size();
    const int num = fits ? std::min(task.max_drafts, followed.num_drafts) : 0;
    task.drafts = std::span(followed.drafts).first(static_cast<size_t>(num));
    task.kind = kModuleDrafts;
  }
}

// A prompt without a seat gets one at the commit, and is followed.
void ModuleDrafter::plan(const Batch& batch, const Speculation& seats) {
  const SpeculationGate::DraftsAhead ahead = seats.ahead();
  const bool any = std::ranges::any_of(batch.slices, [&](const Slice& slice) {
    const Request& request = *slice.request;
    if (const int seat = seats.seat_of(request.id); seat >= 0) return follows(seat);
    // A prompt whose answer continues gets a seat at the commit.
    return request.state == Request::State::prefilling && request.remaining_new_tokens() > 0;
  });
  const bool has_prompts = batch.num_answers() < std::ssize(batch.slices);
  const bool follows_now = ahead.follows || (ahead.follows_prompts && has_prompts);
  num_passes_ = any && follows_now ? std::clamp(ahead.num_drafts, num_modules_, num_drafts_) : 0;
  num_wanted_ = num_passes_ > 0 ? std::min(ahead.num_drafts, num_drafts_) : 0;
}

void ModuleDrafter::take_back_failed() {
  for (ModulePasses& passes : passes_) {
    if (!std::exchange(passes.have_failed, false)) continue;
    for (const Rows& one : passes.rows)
      for (int i = one.begin; i < one.end; ++i)
        rows_.remove(one.pages[static_cast<size_t>(i / page_tokens_)]);
    passes.rows.clear();
  }
}

void ModuleDrafter::drop() {
  passes_[filled_].rows.clear();
  settled_under_way_ = nullptr;
  num_passes_ = 0;
  // If ranks were lost in a pass, rows that were to be kept may not be there.
  for (Followed& followed : followed_) followed.num_kept = 0;
}

// A page that gets its first token has no rows of the module, and a copy has those of its source.
void ModuleDrafter::note_pages(const ForwardBatch& forward) {
  for (const PageId page : forward.fresh_pages) rows_.clear(page);
  for (const PagePair& copy : forward.copies) rows_.copy(copy.from, copy.to);
}

// The last module's layer is the last one.
void ModuleDrafter::note_restored(PageId page) {
  rows_.count(page, runner_.pages().layer(runner_.pages().num_layers() - 1));
}

ModulePasses& ModuleDrafter::begin_settling(const Flight& flight) {
  note_pages(flight.forward);
  ModulePasses& passes = passes_[filled_];
  passes.rows.clear();
  passes.has_prompts = false;
  return passes;
}

void ModuleDrafter::settle(const Flight& flight, const Speculation& seats) {
  if (std::exchange(settled_under_way_, nullptr) == &flight) return;
  begin_settling(flight);
  const std::vector<Slice>& slices = flight.batch->slices;
  for (size_t i = 0; i < slices.size(); ++i) {
    const Request& request = *slices[i].request;
    if (request.finish != FinishReason::none) continue;
    const int wanted = std::min(num_wanted_, request.remaining_new_tokens() - 1);
    settle_slice(flight, i,
                 {.seat = seats.seat_of(request.id),
                  .pages = request.pages,
                  .num_wanted = std::max(wanted, 0)});
  }
}

// An answer whose last token is being sampled is left out, as it is where it has ended.
void ModuleDrafter::settle_under_way(const Flight& flight, Speculation& seats) {
  HOCKET_CHECK(flight.batch->num_drafts == 0);
  settled_under_way_ = &flight;
  begin_settling(flight);
  int num_samples = 0;
  for (size_t i = 0; i < flight.batch->slices.size(); ++i) {
    const Slice& slice = flight.batch->slices[i];
    const Request& request = *slice.request;
    const int pending_sample = slice.is_sampled ? num_samples++ : -1;
    const bool is_last =
        pending_sample >= 0 && request.generated() + 1 >= request.sampling.max_new_tokens;
    if (request.finish != FinishReason::none || is_last) continue;
    seats.take_seat(request);
    const auto sequence = std::ranges::lower_bound(flight.forward.sequences, flight.row_begins[i],
                                                   {}, &AttentionSequence::row_begin);
    settle_slice(flight, i,
                 {.seat = seats.seat_of(request.id),
                  .pending_sample = pending_sample,
                  .pages = sequence->pages});
  }
}

// A row is settled once the token after it is known: those of rejected drafts never are.
void ModuleDrafter::settle_slice(const Flight& flight, size_t index, const SliceEnd& end_of) {
  if (end_of.seat < 0) return;
  const Slice& slice = flight.batch->slices[index];
  const Request& request = *slice.request;
  Followed& followed = followed_[static_cast<size_t>(end_of.seat)];
  followed.num_drafts = 0;
  const int known = static_cast<int>(request.tokens.size()) - (end_of.pending_sample >= 0 ? 0 : 1);
  const int begin = slice.begin, end = std::min(begin + slice.len, known);
  if (begin >= end) return;
  if (begin != followed.end) followed.missing = rows_.num_missing(request.pages, begin);
  followed.end = end;
  if (num_passes_ == 0 || !follows(followed)) {
    followed.missing += end - begin;
    return;
  }
  ModulePasses& passes = passes_[filled_];
  passes.has_prompts |=
      std::cmp_less(index, std::ssize(flight.batch->slices) - flight.batch->num_answers());
  passes.rows.push_back({.request = &request,
                         .tokens = request.tokens,
                         .pending_sample = end_of.pending_sample,
                         .pages = end_of.pages,
                         .seat = end_of.seat,
                         .row_begin = flight.row_begins[index],
                         .begin = begin,
                         .end = end,
                         .num_kept = followed.kept_end == begin ? followed.num_kept : 0,
                         .wanted = end == known ? end_of.num_wanted : 0});
}

ModulePasses& ModuleDrafter::begin(std::span<const PassSpec> passes) {
  ModulePasses& next = passes_[filled_];
  filled_ = 1 - filled_;
  if (std::cmp_less(passes.size(), num_passes_)) next.rows.clear();  // no rank continues
  num_passes_ = 0;
  std::erase_if(next.rows,
                [](const Rows& one) { return one.request->finish != FinishReason::none; });
  next.followed = next.rows.empty()  ? FollowedRows::none
                  : next.has_prompts ? FollowedRows::prompts
                                     : FollowedRows::answers;
  next.num_passes = static_cast<int>(passes.size());
  std::ranges::copy(passes, next.passes.begin());
  next.are_done.store(passes.empty(), std::memory_order_relaxed);
  for (const Rows& one : next.rows) {
    Followed& followed = followed_[static_cast<size_t>(one.seat)];
    followed.kept_end = one.end;
    followed.num_kept = std::min(num_modules_ - 1, one.num_kept + one.end - one.begin);
    for (int i = one.begin; i < one.end; ++i)
      rows_.add(one.pages[static_cast<size_t>(i / page_tokens_)]);
  }
  return next;
}

void ModuleDrafter::await_passes() const {
  passes_[1 - filled_].are_done.wait(false, std::memory_order_acquire);
}

Result<void> ModuleDrafter::play(ModulePasses& passes, std::span<const SampledToken> sampled) {
  const auto play_all = [&]() -> Result<void> {
    int num_rows = 0;
    for (const Rows& one : passes.rows) num_rows += one.end - one.begin;
    if (num_modules_ > 1) copy_model_rows(passes);
    for (int i = 0; i < passes.num_passes; ++i) {
      if (i == num_modules_) find_pages();
      const int room = runner_.plan().work.max_rows - num_rows;
      HOCKET_TRY_VOID(i < num_modules_ ? compute_settled(passes, i, room)
                                       : chain(i, passes.passes[static_cast<size_t>(i)]));
    }
    if (num_modules_ > 1) keep_last_rows(passes);
    return {};
  };
  sampled_ = sampled;
  Result<void> done = play_all();
  for (const Rows& one : passes.rows) {
    if (one.num_drafts == 0) continue;
    Followed& followed = followed_[static_cast<size_t>(one.seat)];
    followed.num_tokens = one.tokens.size();
    followed.num_drafts = one.num_drafts;
    followed.drafts = one.drafts;
  }
  passes.have_failed = !done;
  if (done) passes.rows.clear();
  passes.are_done.store(true, std::memory_order_release);
  passes.are_done.notify_all();
  return done;
}

// A module's pass overwrites the rows that the next module joins.
void ModuleDrafter::copy_model_rows(const ModulePasses& passes) {
  const View<float> from = runner_.work().residual, to = runner_.work().model_rows;
  for (const Rows& one : passes.rows)
    runner_.workers().run(one.end - one.begin, [&](int i, int) {
      std::copy_n(from.row(one.row_begin + i), from.cols, to.row(one.row_begin + i));
    });
}

// Returns the row of model_rows that keeps a request's row, `from_end` rows before the end of those
// that are kept.
int ModuleDrafter::kept_row(int seat, int from_end) const {
  return runner_.plan().work.max_rows + (seat + 1) * (num_modules_ - 1) - from_end;
}

// Keeps the rows that the modules behind the first join once more behind the next step.
void ModuleDrafter::keep_last_rows(const ModulePasses& passes) {
  const View<float> rows = runner_.work().model_rows;
  for (const Rows& one : passes.rows) {
    const int num = std::min(num_modules_ - 1, one.num_kept + one.end - one.begin);
    // Rows only move towards the front, so the first goes first.
    for (int i = one.end - num; i < one.end; ++i) {
      const int from =
          i < one.begin ? kept_row(one.seat, one.begin - i) : one.row_begin + (i - one.begin);
      std::copy_n(rows.row(from), rows.cols, rows.row(kept_row(one.seat, one.end - i)));
    }
  }
}

void ModuleDrafter::begin_pass(ForwardMode mode) {
  batch_.clear();
  batch_.mode = mode;
  hidden_rows_.clear();
}

void ModuleDrafter::add_row(const Rows& of, TokenId token, int position) {
  const PageId page = of.pages[static_cast<size_t>(position / page_tokens_)];
  batch_.ids.push_back(token);
  batch_.positions.push_back(position);
  batch_.slots.push_back({page, position % page_tokens_});
}

// Plays a module over the rows that the step settled. Later modules recompute up to num_again rows
// of earlier steps, because drafts stood in the place of tokens then.
Result<void> ModuleDrafter::compute_settled(ModulePasses& passes, int module, int num_again) {
  begin_pass(ForwardMode::mixed);
  drafting_.clear();
  for (Rows& one : passes.rows) num_again -= add_settled(one, module, num_again);
  const WorkBuffers& work = runner_.work();
  return play_module(module,
                     {.of = &runner_.model(),
                      .residual = num_modules_ > 1 ? work.model_rows : work.residual,
                      .rows = hidden_rows_},
                     passes.passes[static_cast<size_t>(module)]);
}

// Returns a token of the request, known, just sampled or a draft.
TokenId ModuleDrafter::token_at(const Rows& one, int index) const {
  const auto at = static_cast<size_t>(index), num_known = one.tokens.size();
  if (at < num_known) return one.tokens[at];
  if (one.pending_sample < 0) return one.drafts[at - num_known];
  const SampledToken& sampled = sampled_[static_cast<size_t>(one.pending_sample)];
  return sampled.failed ? TokenId{0} : sampled.token;  // a request whose token failed has ended
}

// Adds a request's rows to a module's pass. Returns how many of them are computed again.
int ModuleDrafter::add_settled(Rows& one, int module, int num_again) {
  const Request& request = *one.request;
  const int num_tokens = static_cast<int>(one.tokens.size()) + (one.pending_sample >= 0 ? 1 : 0);
  const int begin = one.begin - std::min({module, one.num_kept, num_again});
  const int end = std::min(one.end, num_tokens + one.num_drafts - 1 - module);
  if (begin >= end) return 0;
  add_sequence({.row_begin = batch_.num_rows(),
                .begin = begin,
                .end = end,
                .prompt_len = request.prompt_len,
                .pages = one.pages.first(pages_for(end, page_tokens_)),
                .form_borders = request.form_borders},
               runner_.info().prompt_form, batch_);
  for (int i = begin; i < end; ++i) {
    hidden_rows_.push_back(i < one.begin ? kept_row(one.seat, one.begin - i)
                                         : one.row_begin + (i - one.begin));
    add_row(one, token_at(one, i + 1 + module), i);
  }
  if (one.wanted <= module || one.num_drafts < module) return one.begin - begin;
  one.last_row = batch_.num_rows() - 1;
  batch_.output_rows.push_back(one.last_row);
  drafting_.push_back(&one);
  return one.begin - begin;
}

// Finds the pages of all chains. The list is reserved before spans into it are made, so that they
// stay valid.
void ModuleDrafter::find_pages() {
  size_t num_pages = 0;
  for (const Rows* one : drafting_)
    if (const int needed = pages_needed(*one); needed > std::ssize(one->pages))
      num_pages += static_cast<size_t>(needed);
  if (num_pages > drafting_pages_.capacity()) drafting_pages_.reserve(2 * num_pages);
  drafting_pages_.clear();
  for (size_t i = 0; i < drafting_.size(); ++i) find_pages(*drafting_[i], static_cast<int>(i));
}

// Drafts once more for each chain that continues; the last pass gave it `step` drafts.
Result<void> ModuleDrafter::chain(int step, const PassSpec& pass) {
  std::erase_if(drafting_,
                [&](const Rows* one) { return one->wanted <= step || one->num_drafts < step; });
  begin_pass(ForwardMode::decode);
  for (Rows* one : drafting_) {
    const int position = one->end - 1 + step, row = batch_.num_rows();
    hidden_rows_.push_back(one->last_row);
    one->last_row = row;
    batch_.output_rows.push_back(row);
    add_sequence({.row_begin = row,
                  .begin = position,
                  .end = position + 1,
                  .prompt_len = one->request->prompt_len,
                  .pages = one->pages.first(pages_for(position + 1, page_tokens_))},
                 runner_.info().prompt_form, batch_);
    add_row(*one, one->drafts[static_cast<size_t>(step) - 1], position);
  }
  return play_module(num_modules_ - 1,
                     {.of = &runner_.model().modules().back(),
                      .residual = runner_.work().residual,
                      .rows = hidden_rows_},
                     pass);
}

int ModuleDrafter::pages_needed(const Rows& one) const {
  return pages_for(one.end - 1 + one.wanted, page_tokens_);
}

// Adds spare pages behind the request's own, if its chain goes beyond them.
void ModuleDrafter::find_pages(Rows& one, int index) {
  const int needed = pages_needed(one);
  const std::span<const PageId> own = one.pages;
  if (needed <= std::ssize(own)) return;
  const size_t at = drafting_pages_.size();
  drafting_pages_.insert(drafting_pages_.end(), own.begin(), own.end());
  const int spares = pages_for(num_drafts_ - 1, page_tokens_);
  for (int i = 0; i < needed - std::ssize(own); ++i)
    drafting_pages_.push_back(runner_.spare_page(index * spares + i));
  one.pages = std::span(drafting_pages_).subspan(at);
}

// A rank without rows takes part if ranks exchange theirs.
Result<void> ModuleDrafter::play_module(int module, const Model::HiddenRows& hidden,
                                        const PassSpec& pass) {
  if (batch_.num_rows() == 0 && !runner_.exchanges()) return {};
  HOCKET_TRY_VOID(runner_.forward_module(module, batch_, hidden, pass));
  take_drafts();
  return {};
}

void ModuleDrafter::take_drafts() {
  const int block = static_cast<int>(stats_.size());
  const int num_outputs = static_cast<int>(batch_.output_rows.size());
  for (int begin = 0; begin < num_outputs; begin += block) {
    const int count = std::min(block, num_outputs - begin);
    row_stats(runner_.backend(), runner_.logits(begin, count), std::span(stats_).first(count));
    for (int i = 0; i < count; ++i) {
      const auto output = static_cast<size_t>(begin) + static_cast<size_t>(i);
      Rows& one = *drafting_[output];
      if (!stats_[static_cast<size_t>(i)].finite) continue;  // its chain ends
      one.drafts[static_cast<size_t>(one.num_drafts++)] =
          TokenId{stats_[static_cast<size_t>(i)].argmax};
    }
  }
}

}  // namespace hocket
