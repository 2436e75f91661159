// Plays the modules for multi-token prediction behind each pass of the player, and chains them
// where there is one: it then drafts from its own rows.
#pragma once

#include <span>
#include <vector>

#include "engine/check/player.h"

namespace hocket {

// Tokens behind the last of a script whose keys a chained module writes.
inline constexpr int kChainedTokens = 2;

class ModulePlayer {
 public:
  ModulePlayer(Runner& runner, std::span<const Script> scripts, RowReader& reader)
      : runner_(runner), scripts_(scripts), reader_(reader) {}

  // Shows the drafts of the rows that the pass over `batch` has just computed. `pages` are those
  // of each script. The pass's logits must have been read before.
  void play(const ForwardBatch& batch, std::span<const ScriptRow> rows,
            std::span<const std::span<const PageId>> pages);

 private:
  void keep_residual(int num_rows);
  TokenId token_for(int row, int module) const;
  void show(int module);
  void chain(std::span<const std::span<const PageId>> pages);
  void draft_again(std::span<const std::span<const PageId>> pages, int step);
  bool is_last(int row) const;

  Runner& runner_;
  std::span<const Script> scripts_;
  RowReader& reader_;
  ForwardBatch batch_;
  std::span<const ScriptRow> rows_;
  std::vector<float> residual_;                // [rows, hidden] of the pass
  std::vector<int32_t> hidden_rows_;           // [rows of batch_]
  std::vector<std::vector<TokenId>> guesses_;  // [rows] the drafts so far
  std::vector<int> drafting_;                  // the rows of the pass that batch_ chains
};

}  // namespace hocket
