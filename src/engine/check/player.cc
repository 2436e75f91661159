#include "engine/check/player.h"

#include <algorithm>

#include "engine/check/module_player.h"
#include "engine/prepare.h"

namespace hocket {
namespace {

constexpr int kFirstTogether = 3;

class Player final : public ForwardProbe {
 public:
  Player(Runner& runner, std::span<const Script> scripts, PlayOptions options, RowReader& reader)
      : runner_(runner), options_(options), reader_(reader), modules_(runner, scripts, reader) {
    for (const Script& script : scripts) sequences_.push_back({.script = &script});
  }

  Result<void> play() {
    const int total = static_cast<int>(sequences_.size());
    int done = 0, joined = 0;
    for (int pass = 0; done < total; ++pass) {
      // With max_together 1, the next script joins when all before it have ended.
      const int wanted = std::max(done + 1, options_.max_together == 1 ? 0 : kFirstTogether + pass);
      joined = std::min({total, std::max(joined, wanted), done + options_.max_together});
      HOCKET_TRY_VOID(fill(joined));
      runner_.forward(batch_, options_.plan, this);
      show_heads();
      show_modules();
      done = static_cast<int>(std::ranges::count_if(sequences_, &Sequence::done));
    }
    return {};
  }

  void after(int layer, Op op, const Half& half) override {
    const bool embedded = layer == 0 && op == Op::attn_in;
    const bool ended = op == Op::mlp || op == Op::combine_wait;
    if (!embedded && !ended && op != Op::gate) return;
    for (int i = 0; i < half.rows.count; ++i) {
      const int row = half.rows.begin + i;
      if (op == Op::gate) {
        const Routing& routing = half.state.routing.peek();
        reader_.routing(
            rows_[row], layer,
            {row_of(routing.ids, i), row_of(routing.weights, i), row_of(routing.logits, i)});
      } else {
        const View<float> residual = runner_.work().residual;
        reader_.hidden(rows_[row], ended ? layer + 1 : 0, row_of(residual, row));
      }
    }
  }

 private:
  struct Sequence {
    const Script* script = nullptr;
    int computed = 0;
    StateSlot state;  // models with delta nets: its slot, in which all its states are made
    std::vector<PageId> pages;
    bool done() const { return computed == script->num_tokens(); }
    TokenId token(int i) const {
      const auto prompt = std::ssize(script->prompt);
      return i < prompt ? script->prompt[i] : script->fed[i - prompt];
    }
  };

  // Fills the next pass with rows of every unfinished sequence among the first `joined`.
  Result<void> fill(int joined) {
    batch_.clear();
    rows_.clear();
    batch_.mode = ForwardMode::mixed;
    int free_rows = runner_.plan().work.max_rows;
    for (int s = 0; s < joined && free_rows > 0; ++s) {
      const Sequence& sequence = sequences_[s];
      if (sequence.done()) continue;
      int count = static_cast<int>(std::ssize(sequence.script->prompt)) - sequence.computed;
      if (options_.chunk_tokens > 0) count = std::min(count, options_.chunk_tokens);
      count = std::clamp(count, 1, free_rows);
      HOCKET_TRY_VOID(add_rows(s, count));
      free_rows -= count;
    }
    return {};
  }

  Result<void> add_rows(int s, int count) {
    Sequence& sequence = sequences_[s];
    const int page_tokens = runner_.info().page_tokens;
    const int row_begin = batch_.num_rows();
    if (sequence.pages.empty()) HOCKET_TRY_VOID(take_pages(sequence));
    const int end = sequence.computed + count;
    for (int i = sequence.computed; i < end; ++i) {
      batch_.ids.push_back(sequence.token(i));
      batch_.positions.push_back(i);
      batch_.slots.push_back({sequence.pages[i / page_tokens], i % page_tokens});
      batch_.output_rows.push_back(static_cast<int32_t>(rows_.size()));
      rows_.push_back({s, i});
    }
    if (runner_.choice().model.num_linear_layers() > 0) {
      HOCKET_TRY_VOID(take_slot(sequence));
      batch_.delta.push_back({.row_begin = row_begin,
                              .num_rows = count,
                              .first_position = sequence.computed,
                              .block = sequence.state.slot,
                              .load_state_at = sequence.computed == 0 ? 0 : -1,
                              .states = {&sequence.state, 1}});
    }
    add_sequence({.row_begin = row_begin,
                  .begin = sequence.computed,
                  .end = end,
                  .prompt_len = static_cast<int>(sequence.script->prompt.size()),
                  .pages = std::span(sequence.pages).first(pages_for(end, page_tokens))},
                 runner_.info().prompt_form, batch_);
    sequence.computed = end;
    return {};
  }

  // Gives the sequence the pages of all its tokens, and of those that a module writes behind them.
  Result<void> take_pages(Sequence& sequence) {
    const int behind = runner_.info().model.num_mtp_loaded > 0 ? kChainedTokens : 0;
    const int count = static_cast<int>(
        pages_for(sequence.script->num_tokens() + behind, runner_.info().page_tokens));
    if (count > num_pages() - pages_used_)
      return fail(error(ErrorCode::kv_does_not_fit,
                        "the check's prompts need more than the {} pages of the KV cache",
                        num_pages())
                      .with_fix(runner_.info().num_window_pages > 0
                                    ? "a larger --max-total-tokens; --swa-full-tokens-ratio 1"
                                    : "a larger --max-total-tokens"));
    for (int i = 0; i < count; ++i) sequence.pages.push_back(PageId{pages_used_++});
    batch_.fresh_pages.insert(batch_.fresh_pages.end(), sequence.pages.begin(),
                              sequence.pages.end());
    return {};
  }

  // Returns how many pages sequences may use; each page has the same number in all layers.
  int num_pages() const {
    const EngineInfo& info = runner_.info();
    return info.num_window_pages > 0 ? std::min(info.num_pages, info.num_window_pages)
                                     : info.num_pages;
  }

  // Gives the sequence the number of a state slot and a block slot, if it has none yet.
  Result<void> take_slot(Sequence& sequence) {
    if (sequence.state.slot >= 0) return {};
    std::vector<bool> taken(runner_.plan().num_blocks);
    for (const Sequence& other : sequences_)
      if (other.state.slot >= 0 && !other.done()) taken[other.state.slot] = true;
    const auto free = std::ranges::find(taken, false);
    if (free == taken.end())
      return fail(error(ErrorCode::kv_does_not_fit,
                        "the check's scripts need more than the {} states that fit", taken.size())
                      .with_fix("a larger --max-running-requests"));
    sequence.state = {.end = sequence.script->num_tokens(),
                      .slot = static_cast<int>(free - taken.begin())};
    return {};
  }

  void show_heads() {
    const int count = batch_.num_rows();
    const int block = runner_.plan().work.max_logits_rows;
    stats_.resize(block);
    for (int begin = 0; begin < count; begin += block) {
      const int n = std::min(block, count - begin);
      const View<float> logits = runner_.logits(begin, n);
      row_stats(runner_.backend(), logits, std::span(stats_).first(n));
      for (int i = 0; i < n; ++i) {
        const std::vector<float> norm = float_row(runner_.work().hidden, begin + i);
        reader_.head(rows_[begin + i], {norm, row_of(logits, i), stats_[i]});
      }
    }
  }

  void show_modules() {
    pages_.clear();
    for (const Sequence& sequence : sequences_) pages_.emplace_back(sequence.pages);
    modules_.play(batch_, rows_, pages_);
  }

  Runner& runner_;
  PlayOptions options_;
  RowReader& reader_;
  std::vector<Sequence> sequences_;
  ForwardBatch batch_;
  std::vector<ScriptRow> rows_;  // rows of batch_
  std::vector<RowStats> stats_;
  std::vector<std::span<const PageId>> pages_;  // [scripts]
  ModulePlayer modules_;
  int pages_used_ = 0;
};

}  // namespace

std::vector<float> float_row(const MatrixView& matrix, int64_t row) {
  std::vector<float> floats;
  with_dtype(matrix.dtype, [&](auto t) {
    for (const auto x : row_of(matrix.as<decltype(t)>(), row)) floats.push_back(to_float(x));
  });
  return floats;
}

Result<void> play_scripts(Runner& runner, std::span<const Script> scripts, PlayOptions options,
                          RowReader& reader) {
  return Player(runner, scripts, options, reader).play();
}

}  // namespace hocket
