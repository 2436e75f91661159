// Plays known tokens through a Runner by hand, without scheduler and sampler, and shows every
// computed row: `hocket check` and tests look inside the model this way.
//
//   script   prompt tokens | tokens fed after it, one per pass, as decoding would: each token has
//            the role (compute/kernels/attention.h) that it would have in a request
#pragma once

#include <span>
#include <vector>

#include "compute/kernels/row_stats.h"
#include "engine/runner/runner.h"

namespace hocket {

struct Script {
  std::vector<TokenId> prompt;  // >= 1
  std::vector<TokenId> fed;
  int num_tokens() const { return static_cast<int>(prompt.size() + fed.size()); }
};

// The position of a token in a script.
struct ScriptRow {
  int script = 0;
  int position = 0;
};

// Gets every row. Spans are valid during the call. Thread: the caller of play_scripts().
class RowReader {
 public:
  virtual ~RowReader() = default;
  // layer 0: the embedding; layer l + 1: the residual sum after decoder layer l.
  virtual void hidden(ScriptRow, int /*layer*/, std::span<const float> /*values*/) {}
  struct Choice {
    std::span<const int32_t> experts;  // [k], slots in falling probability
    std::span<const float> weights;    // [k]
    std::span<const float> logits;     // [experts]
  };
  virtual void routing(ScriptRow, int /*layer*/, const Choice&) {}
  struct Head {
    std::span<const float> final_norm;  // [hidden]
    std::span<const float> logits;      // [vocabulary]
    RowStats stats;
  };
  virtual void head(ScriptRow, const Head&) = 0;
  // The head of a module for multi-token prediction, over its own final norm. It joined the row
  // with the token that is `module` + 1 behind it.
  virtual void module_head(ScriptRow, int /*module*/, const Head&) {}
  // The likeliest tokens that modules see behind the token that follows the row: one for each
  // module, or of a chain. Only for the newest row of a script in its pass.
  virtual void drafts(ScriptRow, std::span<const TokenId> /*tokens*/) {}
};

// Return a row of a matrix; the second as float32.
template <class T>
std::span<const T> row_of(View<T> view, int64_t row) {
  return {view.row(row), static_cast<size_t>(view.cols)};
}
std::vector<float> float_row(const MatrixView& matrix, int64_t row);

struct PlayOptions {
  int chunk_tokens = 0;  // prompt rows of one pass; 0: the whole prompt
  // Most scripts in one pass. A few begin, then one more joins each pass, so that chunks and decode
  // rows mix.
  int max_together = 1;
  Plan plan;  // plan of every pass
};

// Plays all scripts and shows every row once, positions ascending. Pages are taken from the pool's
// first on, and their contents are lost. Errors: kv_does_not_fit (more tokens than the pool holds).
Result<void> play_scripts(Runner& runner, std::span<const Script> scripts, PlayOptions options,
                          RowReader& reader);

}  // namespace hocket
