// Finds where the last message of a prompt begins, and where the generation prompt does, with which
// the template opens the answer.   Thread: any.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/ids.h"

namespace hocket {

//   ... <end> last message <end> generation prompt
//            ^ message          ^ generation_prompt
//
// Both are numbers of tokens before them: the last two end tokens and all before these. 0 where the
// prompt has no such token.
struct LastMessage {
  int message = 0, generation_prompt = 0;
};

inline LastMessage last_message(std::span<const TokenId> prompt,
                                const std::vector<TokenId>& end_ids) {
  LastMessage found;
  for (auto i = std::ssize(prompt) - 1; i >= 0 && found.message == 0; --i)
    if (std::ranges::find(end_ids, prompt[static_cast<size_t>(i)]) != end_ids.end())
      (found.generation_prompt == 0 ? found.generation_prompt : found.message) =
          static_cast<int>(i) + 1;
  return found;
}

}  // namespace hocket
