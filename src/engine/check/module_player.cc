#include "engine/check/module_player.h"

#include <algorithm>
#include <numeric>

#include "engine/prepare.h"

namespace hocket {

void ModulePlayer::play(const ForwardBatch& batch, std::span<const ScriptRow> rows,
                        std::span<const std::span<const PageId>> pages) {
  const int num_modules = runner_.info().model.num_mtp_loaded;
  if (num_modules == 0) return;
  const auto num_rows = static_cast<int>(rows.size());
  rows_ = rows;
  keep_residual(num_rows);
  batch_.clear();
  batch_.mode = batch.mode;
  batch_.ids = batch.ids;
  batch_.positions = batch.positions;
  batch_.slots = batch.slots;
  batch_.sequences = batch.sequences;
  batch_.output_rows = batch.output_rows;
  hidden_rows_.resize(rows.size());
  std::iota(hidden_rows_.begin(), hidden_rows_.end(), 0);
  guesses_.assign(rows.size(), {});
  const int width = runner_.info().model.hidden_size;
  for (int module = 0; module < num_modules; ++module) {
    for (int row = 0; row < num_rows; ++row) batch_.ids[row] = token_for(row, module);
    const Result<void> done =
        runner_.forward_module(module, batch_,
                               {.of = &runner_.model(),
                                .residual = {residual_.data(), num_rows, width},
                                .rows = hidden_rows_});
    HOCKET_CHECK(done.has_value());  // a single rank can lose no other
    show(module);
  }
  chain(pages);
}

// A module's pass overwrites the rows that the next module reads.
void ModulePlayer::keep_residual(int num_rows) {
  const View<float> from = runner_.work().residual;
  residual_.resize(num_rows * from.cols);
  for (int row = 0; row < num_rows; ++row)
    std::copy_n(from.row(row), from.cols, residual_.begin() + row * from.cols);
}

// Returns the token that a module joins with a row: of the script as far as the first generated
// token, behind that the drafts of the modules before. Rows of generated tokens know the script.
TokenId ModulePlayer::token_for(int row, int module) const {
  const auto [script, position] = rows_[row];
  const Script& of = scripts_[script];
  const int prompt_len = static_cast<int>(of.prompt.size()), at = position + 1 + module;
  const int guess = at - prompt_len - 1;
  if (position < prompt_len && guess >= 0) {
    const int last = row + (prompt_len - 1 - position);
    const bool here = last < std::ssize(rows_) && rows_[last].script == script;
    if (here && guess < std::ssize(guesses_[last])) return guesses_[last][guess];
  }
  if (at >= of.num_tokens()) return TokenId{0};  // not known: the row is not shown
  return at < prompt_len ? of.prompt[at] : of.fed[at - prompt_len];
}

void ModulePlayer::show(int module) {
  const int block = runner_.plan().work.max_logits_rows;
  std::vector<RowStats> stats(block);
  for (int begin = 0; begin < batch_.num_rows(); begin += block) {
    const int count = std::min(block, batch_.num_rows() - begin);
    const View<float> logits = runner_.logits(begin, count);
    row_stats(runner_.backend(), logits, std::span(stats).first(count));
    for (int i = 0; i < count; ++i) {
      const int row = begin + i;
      const std::vector<float> norm = float_row(runner_.work().hidden, row);
      guesses_[row].push_back(TokenId{stats[i].argmax});
      if (rows_[row].position + 1 < scripts_[rows_[row].script].num_tokens())
        reader_.module_head(rows_[row], module, {norm, row_of(logits, i), stats[i]});
    }
  }
}

// Returns true if the row is the newest of its script, and the token behind it is known.
bool ModulePlayer::is_last(int row) const {
  const auto [script, position] = rows_[row];
  const bool newest = row + 1 == std::ssize(rows_) || rows_[row + 1].script != script;
  return newest && position + 1 < scripts_[script].num_tokens();
}

void ModulePlayer::chain(std::span<const std::span<const PageId>> pages) {
  drafting_.clear();
  for (int row = 0; row < std::ssize(rows_); ++row)
    if (is_last(row)) drafting_.push_back(row);
  if (drafting_.empty()) return;
  // Several modules read rows of the model, which are known no further.
  const int steps = runner_.info().model.num_mtp_loaded == 1 ? kChainedTokens : 0;
  hidden_rows_.assign(drafting_.begin(), drafting_.end());
  for (int step = 1; step <= steps; ++step) draft_again(pages, step);
  for (const int row : drafting_) reader_.drafts(rows_[row], guesses_[row]);
}

void ModulePlayer::draft_again(std::span<const std::span<const PageId>> pages, int step) {
  const int page_tokens = runner_.info().page_tokens;
  batch_.clear();
  batch_.mode = ForwardMode::decode;
  for (const int row : drafting_) {
    const auto [script, position] = rows_[row];
    const int at = position + step;
    batch_.output_rows.push_back(batch_.num_rows());
    add_sequence({.row_begin = batch_.num_rows(),
                  .begin = at,
                  .end = at + 1,
                  .prompt_len = static_cast<int>(scripts_[script].prompt.size()),
                  .pages = pages[script].first(at / page_tokens + 1)},
                 runner_.info().prompt_form, batch_);
    batch_.ids.push_back(guesses_[row].back());
    batch_.positions.push_back(at);
    batch_.slots.push_back({pages[script][at / page_tokens], at % page_tokens});
  }
  const Result<void> done = runner_.forward_module(0, batch_,
                                                   {.of = &runner_.model().modules()[0],
                                                    .residual = runner_.work().residual,
                                                    .rows = hidden_rows_});
  HOCKET_CHECK(done.has_value());  // a single rank can lose no other
  std::vector<RowStats> stats(drafting_.size());
  const auto count = static_cast<int>(drafting_.size());
  row_stats(runner_.backend(), runner_.logits(0, count), stats);
  for (int i = 0; i < count; ++i) guesses_[drafting_[i]].push_back(TokenId{stats[i].argmax});
  std::iota(hidden_rows_.begin(), hidden_rows_.end(), 0);
}

}  // namespace hocket
