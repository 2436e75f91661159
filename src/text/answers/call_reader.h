// Reads the calls of one model family from the answer's text and passes everything to an
// EventWriter.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/answers/event_writer.h"
#include "text/answers/tool.h"
#include "text/answers/tool_format.h"

namespace hocket {

// Longest name of a function or argument; text with a longer one is no call.
inline constexpr size_t kMaxCallNameBytes = 256;

class CallReader {
 public:
  virtual ~CallReader() = default;
  virtual void step(char c) = 0;
  // Call when the answer has ended.
  virtual void finish() = 0;
  // Returns true if the text so far ends within reasoning that this reader separates itself.
  virtual bool in_reasoning() const { return false; }
};

// A reader works with these; both outlive it.
struct CallContext {
  EventWriter* writer = nullptr;
  std::span<const Tool> tools;
};

// Returns null for ToolFormat::none.
std::unique_ptr<CallReader> make_call_reader(ToolFormat format, CallContext context);

// One function for each group of families:
std::unique_ptr<CallReader> make_tagged_reader(ToolFormat format, CallContext context);
std::unique_ptr<CallReader> make_section_reader(ToolFormat format, CallContext context);
std::unique_ptr<CallReader> make_json_calls_reader(ToolFormat format, CallContext context);
std::unique_ptr<CallReader> make_pythonic_reader(CallContext context);

// Returns the marks that begin a call wherever they are.
std::vector<std::string_view> opening_marks(ToolFormat format);

}  // namespace hocket
