// Runs passes of a model without a server, for `hocket bench one-batch`. Thread: that of worker 0.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "bench/one_batch.h"
#include "bench/pass_profile.h"
#include "engine/plan/cost.h"
#include "engine/runner/runner.h"
#include "policy/cache/page_allocator.h"

namespace hocket {

// The time and the work of several passes.
struct PassWork {
  double seconds = 0, bytes = 0;
  Operations operations;
  int64_t experts_hit = 0;  // distinct experts of each layer and pass, summed
  int passes = 0;
  PassProfile profile;
};

// Returns the number of experts in all layers together.
inline int experts_of(const ModelConfig& model) {
  return model.moe.num_experts * static_cast<int>(std::ranges::count(model.layer_is_moe, true));
}

// Runs passes over sequences that grow by random tokens. Each has pages of its own, except those of
// a prefix that all share.
class PassBench {
 public:
  PassBench(Runner& runner, const ModelCost& cost, const BenchOneBatchOptions& options)
      : runner_(runner), cost_(cost), chunk_(runner.plan().work.max_rows) {
    batch_.reserve(chunk_, runner.plan().max_running_requests);
    pages_per_sequence_ =
        pages_for(options.context_len + options.output_len, runner.info().page_tokens);
    shared_pages_ =
        std::min(options.shared_prefix, options.context_len) / runner.info().page_tokens;
    experts_all_ = experts_of(runner.info().model);
  }

  // Runs the prompt of one sequence in chunks, with the logits of its last row.
  PassWork prefill(int len) {
    PassWork work;
    start_sequences(1, pages_for(len, runner_.info().page_tokens));
    while (sequences_[0].len < len) {
      const int begin = sequences_[0].len, rows = std::min(chunk_, len - begin);
      batch_.clear();
      batch_.mode = ForwardMode::extend;
      add_rows(sequences_[0], rows, runner_.info().prompt_form);
      if (begin + rows == len) batch_.output_rows.push_back(rows - 1);
      add(work, cost_.prefill(rows, begin));
    }
    return work;
  }

  // Runs prompts of `context` tokens, which are not timed, then `steps` steps of one token each.
  PassWork decode(int batch, int context, int steps) {
    PassWork ignored, work;
    start_sequences(batch, pages_per_sequence_);
    const int shared = shared_pages_ * runner_.info().page_tokens;
    for (Sequence& sequence : sequences_) {
      if (&sequence != sequences_.data()) share_prefix(sequence);
      while (sequence.len < context) {
        batch_.clear();
        batch_.mode = ForwardMode::extend;
        add_rows(sequence, std::min(chunk_, context - sequence.len), runner_.info().prompt_form);
        add(ignored, {});
      }
    }
    for (int step = 0; step < steps; ++step) {
      batch_.clear();
      batch_.mode = ForwardMode::decode;
      for (Sequence& sequence : sequences_) {
        batch_.output_rows.push_back(batch_.num_rows());
        add_rows(sequence, 1, MlaForm::absorbed);
      }
      PassShape pass = cost_.decode(batch, context + step + 1);
      pass.kv_tokens -= (batch - 1) * shared;
      add(work, pass);
    }
    return work;
  }

 private:
  struct Sequence {
    std::vector<PageId> pages;
    int len = 0;
    StateSlot state;  // models with delta nets: the slot of all its states
  };

  void start_sequences(int count, int num_pages) {
    HOCKET_CHECK(count * num_pages <= runner_.info().num_pages);
    sequences_.assign(count, {});
    for (int i = 0; i < count * num_pages; ++i)
      sequences_[i / num_pages].pages.push_back(PageId{i});
    for (int i = 0; i < count; ++i)
      sequences_[i].state = {.end = num_pages * runner_.info().page_tokens, .slot = i};
  }

  // Gives the sequence the shared pages of the first one; it continues behind them.
  void share_prefix(Sequence& sequence) {
    std::copy_n(sequences_[0].pages.begin(), shared_pages_, sequence.pages.begin());
    sequence.len = shared_pages_ * runner_.info().page_tokens;
  }

  void add_rows(Sequence& sequence, int rows, MlaForm form) {
    const int page_tokens = runner_.info().page_tokens;
    batch_.sequences.push_back({.row_begin = batch_.num_rows(),
                                .num_rows = rows,
                                .first_position = sequence.len,
                                .form = form,
                                .pages = sequence.pages});
    if (runner_.info().num_states > 0)
      batch_.delta.push_back({.row_begin = batch_.num_rows(),
                              .num_rows = rows,
                              .first_position = sequence.len,
                              .block = sequence.state.slot,
                              .load_state_at = sequence.len == 0 ? 0 : -1,
                              .states = {&sequence.state, 1}});
    std::uniform_int_distribution<int32_t> token(0, runner_.info().model.vocab_size - 1);
    for (int i = 0; i < rows; ++i, ++sequence.len) {
      const PageId page = sequence.pages[sequence.len / page_tokens];
      const int offset = sequence.len % page_tokens;
      batch_.ids.push_back(TokenId{token(random_)});
      batch_.positions.push_back(sequence.len);
      batch_.slots.push_back({page, offset});
      if (offset == 0) batch_.fresh_pages.push_back(page);
    }
  }

  // Runs one pass over batch_ and adds its time and work to `work`. The work is that of `pass`,
  // with the experts that the rows really hit and the outputs of the batch.
  void add(PassWork& work, PassShape pass) {
    const TimePoint start = RealClock().now();
    probe_.begin();
    runner_.forward(batch_, {}, &probe_);
    const int wanted = static_cast<int>(batch_.output_rows.size());
    const int block = runner_.plan().work.max_logits_rows;
    for (int row = 0; row < wanted; row += block)
      runner_.logits(row, std::min(block, wanted - row));
    work.seconds += to_seconds(RealClock().now() - start);
    const PassProbe::PassRecord found = probe_.end();
    work.experts_hit += found.experts_hit;
    pass.experts_hit = static_cast<double>(found.experts_hit);
    pass.outputs = wanted;
    ++work.passes;
    work.profile.add(found.profile);
    work.profile.add_work(pass, cost_, experts_all_);
    work.bytes += cost_.bytes(pass);
    work.operations += cost_.operations(pass);
  }

  Runner& runner_;
  const ModelCost& cost_;
  const int chunk_;
  int pages_per_sequence_ = 0, shared_pages_ = 0, experts_all_ = 0;
  std::mt19937 random_{1};
  ForwardBatch batch_;
  std::vector<Sequence> sequences_;
  PassProbe probe_{runner_.info().model};
};

}  // namespace hocket
