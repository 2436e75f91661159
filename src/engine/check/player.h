// Plays known tokens through a Runner by hand, without scheduler and sampler, and shows every row
// of what was computed: how `hocket check` and the tests look inside the model.
//
//   script   prompt tokens | tokens fed after it, one a pass, as decoding would: the role of each
//            token (kernels/attention.h) is the one it would have in a request
#pragma once

#include <span>
#include <vector>

#include "compute/kernels/row_stats.h"
#include "engine/runner.h"

namespace hocket {

struct Script {
  std::vector<TokenId> prompt;  // >= 1
  std::vector<TokenId> fed;
  int num_tokens() const { return static_cast<int>(prompt.size() + fed.size()); }
};

// A token of a script.
struct ScriptRow {
  int script = 0;
  int position = 0;
};

// Who looks. Spans are valid during the call.   Thread: the caller of play_scripts().
class RowReader {
 public:
  virtual ~RowReader() = default;
  // layer 0: the embedding; l + 1: what decoder layer l added up to.
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
};

struct PlayOptions {
  int chunk_tokens = 0;  // prompt rows of one pass; 0: the whole prompt
  int max_together = 1;  // scripts in one pass: a few at first, then one more each pass, so that
                         // chunks and decode rows mix
  Plan plan;             // of every pass
};

// Every script's rows are shown once, positions ascending. Pages are handed out from the pool's
// first on: what they held is lost. Errors: kv_does_not_fit (more tokens than the pool holds).
Result<void> play_scripts(Runner& runner, std::span<const Script> scripts, PlayOptions options,
                          RowReader& reader);

}  // namespace hocket
