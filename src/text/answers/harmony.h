// The format of gpt-oss's answers: messages of channels. The names of the marks are here once,
// for the reader and for grammars.
//
//   <|channel|>analysis<|message|>reasoning<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f
//   <|constrain|>json<|message|>{...}<|call|>
//   <|start|>assistant<|channel|>final<|message|>text<|return|>
//
// The prompt ends with "<|start|>assistant".
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "text/answers/call_reader.h"

namespace hocket {

namespace harmony {
inline constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>",
                                  kMessage = "<|message|>", kConstrain = "<|constrain|>",
                                  kEnd = "<|end|>", kCall = "<|call|>", kReturn = "<|return|>";
inline constexpr std::array kMarks = {kStart, kChannel, kMessage, kConstrain, kEnd, kCall, kReturn};
// Heads of messages, as the model writes them.
inline constexpr std::string_view kReasoning = "<|channel|>analysis<|message|>",
                                  kPreamble = "<|channel|>commentary<|message|>",
                                  kFinal = "<|channel|>final<|message|>",
                                  kNext = "<|start|>assistant";
inline constexpr std::string_view kFunctions = "functions.";  // before the name of a tool
// Longest head of a message; text with a longer one is no message.
inline constexpr size_t kMaxHeadBytes = 512;
}  // namespace harmony

struct HarmonyOptions {
  bool reasoning = false;  // true: channels are separated; false: their text stays as it is
  bool calls = false;      // false: calls stay as they are
  bool open = false;       // true: the text begins within reasoning
};
std::unique_ptr<CallReader> make_harmony_reader(HarmonyOptions options, CallContext context);

}  // namespace hocket
