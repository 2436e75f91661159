#include "gguf/token_kinds.h"

#include <algorithm>
#include <map>

namespace hocket {
namespace {

using Kind = GgufTokenKind;

// Tokens that end a message in some family. Those between the files of a repository (<|file_sep|>)
// are none: in the folders of their models answers go on behind them.
constexpr std::string_view kEnds[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
    "<|tool_response>",
    "<|endoftext|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<end_of_utterance>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
};
// Control tokens of Gemma 4 that converters write as user-defined ones.
constexpr std::string_view kMarks[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                       "<tool_call|>", "<tool_response|>", "<|\"|>"};

bool is_one_of(std::string_view text, std::span<const std::string_view> all) {
  return std::ranges::find(all, text) != all.end();
}

// Normal tokens end answers only in the form of control tokens: a model may write the others.
bool ends(std::string_view text, Kind kind) {
  const bool may_end = kind == Kind::control || kind == Kind::user_defined ||
                       (kind == Kind::normal && text.starts_with('<') && text.ends_with('>'));
  return may_end && is_one_of(text, kEnds);
}

Kind kind_of(double number) {
  for (const Kind kind :
       {Kind::normal, Kind::unknown, Kind::control, Kind::user_defined, Kind::byte})
    if (number == static_cast<double>(kind)) return kind;
  return Kind::other;
}

}  // namespace

std::vector<Kind> gguf_token_kinds(std::span<const std::string_view> tokens,
                                   std::span<const double> numbers) {
  std::vector<Kind> kinds(tokens.size(), Kind::normal);
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!numbers.empty()) kinds[id] = kind_of(numbers[id]);
    if (ends(tokens[id], kinds[id]) ||
        (kinds[id] == Kind::user_defined && is_one_of(tokens[id], kMarks)))
      kinds[id] = Kind::control;
  }
  return kinds;
}

std::vector<int64_t> gguf_ends_by_text(const GgufMetadata& metadata, int64_t vocab) {
  const auto tokens = metadata.texts("tokenizer.ggml.tokens");
  const auto numbers = metadata.numbers("tokenizer.ggml.token_type");
  if (!tokens) return {};
  size_t count = std::min(tokens->size(), static_cast<size_t>(vocab));
  if (numbers) count = std::min(count, numbers->size());
  std::map<std::string_view, int64_t> found;  // the first token of each text
  for (size_t id = 0; id < count; ++id)
    if (ends((*tokens)[id], numbers ? kind_of((*numbers)[id]) : Kind::normal))
      found.emplace((*tokens)[id], id);
  // With channels, a message that is not the last one ends with <|end|>.
  if ((found.contains("<|return|>") && found.contains("<|call|>")) ||
      (found.contains("<|calls|>") && found.contains("<|flush|>")))
    found.erase("<|end|>");
  std::vector<int64_t> ids;
  for (const auto& [text, id] : found) ids.push_back(id);
  return ids;
}

}  // namespace hocket
