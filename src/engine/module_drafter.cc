#include "engine/module_drafter.h"

#include <algorithm>

#include "engine/prepare.h"
#include "policy/cache/page_allocator.h"

namespace hocket {

ModuleDrafter::ModuleDrafter(Runner& runner, int num_seats, int num_drafts)
    : runner_(runner),
      num_drafts_(num_drafts),
      page_tokens_(runner.info().page_tokens),
      has_rows_(static_cast<size_t>(runner.info().num_pages)),
      followed_(static_cast<size_t>(num_seats)),
      stats_(static_cast<size_t>(runner.plan().work.max_logits_rows)) {
  HOCKET_CHECK(runner.info().model.num_mtp_loaded > 0);
  HOCKET_CHECK((num_drafts >= 1 && num_drafts <= (runner.info().model.local_mtp ? 1 : kMaxDrafts)));
  const int max_rows = runner.plan().work.max_rows;
  settled_.reserve(followed_.size());
  drafting_.reserve(followed_.size());
  pages_.reserve(static_cast<size_t>(runner.info().num_pages));
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
    const int num = fits ? std::min(task.most, followed.num_drafts) : 0;
    task.drafts = std::span(followed.drafts).first(static_cast<size_t>(num));
    task.kind = kModuleDrafts;
  }
}

// A prompt without a seat gets one at the commit, and is followed.
void ModuleDrafter::plan(const Batch& batch, const Speculation& seats) {
  const SpeculationGate::Ahead ahead = seats.ahead();
  const bool any = std::ranges::any_of(batch.slices, [&](const Slice& slice) {
    const Request& request = *slice.request;
    if (const int seat = seats.seat_of(request.id); seat >= 0) return follows(seat);
    // A prompt whose answer goes on gets a seat at the commit.
    return request.state == Request::State::prefilling && request.remaining_new_tokens() > 0;
  });
  num_passes_ = any && ahead.follows ? std::clamp(ahead.depth, 1, num_drafts_) : 0;
  num_wanted_ = num_passes_ > 0 ? std::min(ahead.depth, num_drafts_) : 0;
}

void ModuleDrafter::drop() {
  settled_.clear();
  num_passes_ = 0;
}

// A page that gets its first token has no rows of the module, and a copy has those of its source.
void ModuleDrafter::note_pages(const ForwardBatch& forward) {
  for (const PageId page : forward.fresh_pages) has_rows_[static_cast<size_t>(value(page))] = 0;
  for (const PagePair& copy : forward.copies)
    has_rows_[static_cast<size_t>(value(copy.to))] =
        has_rows_[static_cast<size_t>(value(copy.from))];
}

// The module's layer is the last one. A page without rows of it has nothing but zeros there, since
// every page is cleared before its first token.
void ModuleDrafter::note_restored(PageId page) {
  const KvLayer layer = runner_.pages().layer(runner_.pages().num_layers() - 1);
  const std::span bytes(layer.head(page, 0), static_cast<size_t>(layer.shape.page_bytes()));
  has_rows_[static_cast<size_t>(value(page))] =
      std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{}; });
}

int ModuleDrafter::rows_missing_before(const Request& request, int position) const {
  int missing = 0;
  for (int begin = 0; begin < position; begin += page_tokens_) {
    const PageId page = request.pages[static_cast<size_t>(begin / page_tokens_)];
    const bool has = has_rows_[static_cast<size_t>(value(page))] != 0;
    missing += has ? 0 : std::min(page_tokens_, position - begin);
  }
  return missing;
}

// A row is settled once the token after it is known: those of rejected drafts never are.
void ModuleDrafter::settle(const Flight& flight, const Speculation& seats) {
  settled_.clear();
  has_prompts_ = false;
  note_pages(flight.forward);
  const std::vector<Slice>& slices = flight.batch->slices;
  const auto num_prompts = slices.size() - static_cast<size_t>(flight.batch->num_answers());
  for (size_t i = 0; i < slices.size(); ++i) {
    const Request& request = *slices[i].request;
    const int seat = request.finish == FinishReason::none ? seats.seat_of(request.id) : -1;
    if (seat < 0) continue;
    Followed& followed = followed_[static_cast<size_t>(seat)];
    followed.num_drafts = 0;
    const int known = static_cast<int>(request.tokens.size()) - 1;
    const int begin = slices[i].begin, end = std::min(begin + slices[i].len, known);
    if (begin >= end) continue;
    if (begin != followed.end) followed.missing = rows_missing_before(request, begin);
    followed.end = end;
    if (num_passes_ == 0 || !follows(followed)) {
      followed.missing += end - begin;
      continue;
    }
    has_prompts_ |= i < num_prompts;
    const int wanted = std::min(num_wanted_, request.remaining_new_tokens() - 1);
    settled_.push_back({.request = &request,
                        .followed = &followed,
                        .row_begin = flight.row_begins[i],
                        .begin = begin,
                        .end = end,
                        .wanted = end == known ? std::max(wanted, 0) : 0});
  }
}

Result<void> ModuleDrafter::compute(std::span<const PassSpec> passes) {
  if (std::cmp_less(passes.size(), num_passes_)) settled_.clear();  // no rank goes on
  std::erase_if(settled_,
                [](const Settled& one) { return one.request->finish != FinishReason::none; });
  computed_ = settled_.empty() ? FollowedRows::none
              : has_prompts_   ? FollowedRows::prompts
                               : FollowedRows::answers;
  num_passes_ = 0;
  for (size_t i = 0; i < passes.size(); ++i) {
    if (i == 1) find_pages();
    const auto step = static_cast<int>(i);
    HOCKET_TRY_VOID(i == 0 ? compute_settled(passes[i]) : chain(step, passes[i]));
  }
  settled_.clear();
  return {};
}

void ModuleDrafter::begin_pass(ForwardMode mode) {
  batch_.clear();
  batch_.mode = mode;
  hidden_rows_.clear();
}

void ModuleDrafter::add_row(const Settled& of, TokenId token, int position) {
  const PageId page = of.pages[static_cast<size_t>(position / page_tokens_)];
  batch_.ids.push_back(token);
  batch_.positions.push_back(position);
  batch_.slots.push_back({page, position % page_tokens_});
}

Result<void> ModuleDrafter::compute_settled(const PassSpec& pass) {
  begin_pass(ForwardMode::mixed);
  drafting_.clear();
  for (Settled& one : settled_) {
    const Request& request = *one.request;
    one.pages = request.pages;
    add_sequence({.row_begin = batch_.num_rows(),
                  .begin = one.begin,
                  .end = one.end,
                  .prompt_len = request.prompt_len,
                  .pages = one.pages.first(pages_for(one.end, page_tokens_)),
                  .form_borders = request.form_borders},
                 runner_.info().prompt_form, batch_);
    for (int i = one.begin; i < one.end; ++i) {
      hidden_rows_.push_back(one.row_begin + (i - one.begin));
      add_row(one, request.tokens[static_cast<size_t>(i) + 1], i);
      has_rows_[static_cast<size_t>(value(batch_.slots.back().page))] = 1;
    }
    if (one.wanted == 0) continue;
    one.followed->num_tokens = request.tokens.size();
    one.last_row = batch_.num_rows() - 1;
    batch_.output_rows.push_back(one.last_row);
    drafting_.push_back(&one);
  }
  return play(runner_.model(), pass);
}

// Finds the pages of all chains. The list is reserved before spans into it are made, so that they
// stay valid.
void ModuleDrafter::find_pages() {
  size_t num_pages = 0;
  for (const Settled* one : drafting_)
    if (const int needed = pages_needed(*one); needed > std::ssize(one->request->pages))
      num_pages += static_cast<size_t>(needed);
  if (num_pages > pages_.capacity()) pages_.reserve(2 * num_pages);
  pages_.clear();
  for (size_t i = 0; i < drafting_.size(); ++i) find_pages(*drafting_[i], static_cast<int>(i));
}

// Drafts once more for each chain that goes on; the last pass gave it `step` drafts.
Result<void> ModuleDrafter::chain(int step, const PassSpec& pass) {
  std::erase_if(drafting_, [&](const Settled* one) {
    return one->wanted <= step || one->followed->num_drafts < step;
  });
  begin_pass(ForwardMode::decode);
  for (Settled* one : drafting_) {
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
    add_row(*one, one->followed->drafts[static_cast<size_t>(step) - 1], position);
  }
  return play(runner_.model().modules()[0], pass);
}

int ModuleDrafter::pages_needed(const Settled& one) const {
  return pages_for(one.end - 1 + one.wanted, page_tokens_);
}

// Adds spare pages behind the request's own, if its chain goes beyond them.
void ModuleDrafter::find_pages(Settled& one, int index) {
  const int needed = pages_needed(one);
  const std::span<const PageId> own = one.request->pages;
  if (needed <= std::ssize(own)) return;
  const size_t at = pages_.size();
  pages_.insert(pages_.end(), own.begin(), own.end());
  const int spares = pages_for(num_drafts_ - 1, page_tokens_);
  for (int i = 0; i < needed - std::ssize(own); ++i)
    pages_.push_back(runner_.spare_page(index * spares + i));
  one.pages = std::span(pages_).subspan(at);
}

// A rank without rows takes part if ranks exchange theirs.
Result<void> ModuleDrafter::play(const Model& of, const PassSpec& pass) {
  if (batch_.num_rows() == 0 && !runner_.exchanges()) return {};
  HOCKET_TRY_VOID(runner_.forward_module(
      0, batch_, {.of = &of, .residual = runner_.work().residual, .rows = hidden_rows_}, pass));
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
      Followed& followed = *drafting_[output]->followed;
      if (!stats_[static_cast<size_t>(i)].finite) continue;  // its chain ends
      followed.drafts[static_cast<size_t>(followed.num_drafts++)] =
          TokenId{stats_[static_cast<size_t>(i)].argmax};
    }
  }
}

}  // namespace hocket
