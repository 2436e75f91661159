// Says how much of an answer's stream its client has. A rank that computes an answer for another
// one sends that in lines beside the events, and the other takes them out again:
//
//   : progress CHOICE BYTES ID ID ..\n     the choice's new tokens, then BYTES bytes of events
//   data: {..}\n\n
//
// If the rank is lost, the other continues the answer: it has the request, so it computes the
// same tokens and blocks, and leaves out the blocks that the client has. Thread: values; any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace hocket {

struct AnswerProgress {
  struct ChoiceProgress {
    std::vector<TokenId> ids;  // tokens that the blocks were made of
    int num_blocks = 0;        // blocks that were sent since the last of `ids` was read
  };
  std::vector<ChoiceProgress> choices;  // those with blocks; may be fewer than the answer has
  bool closed = false;                  // true: the block behind all choices was sent
};

// Stands for a choice in the line of the block behind all choices.
inline constexpr int kClosingBlock = -1;

void append_progress(std::string& out, int choice, std::span<const TokenId> new_ids,
                     std::string_view events);

// Takes progress lines out of a stream.
class ProgressReader {
 public:
  // Appends the whole events at the front of `bytes` to `out`, without progress lines. Returns how
  // many bytes of `bytes` were used: call it again with the rest and what follows. A line that is
  // not as it should be sets failed().
  size_t take(std::string_view bytes, std::string& out);
  bool failed() const { return failed_; }
  const AnswerProgress& progress() const { return progress_; }
  AnswerProgress take_progress() { return std::move(progress_); }
  // Returns the number of tokens in progress().
  size_t num_ids() const { return num_ids_; }

 private:
  struct Line;
  bool read(std::string_view text, Line& line) const;
  void note(Line&& line);

  AnswerProgress progress_;
  size_t num_ids_ = 0;
  bool failed_ = false;
};

}  // namespace hocket
