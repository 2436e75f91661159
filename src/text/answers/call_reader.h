// How one family's calls are read from the answer's text. Everything is said to an EventWriter.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/answers/answer_format.h"
#include "text/answers/event_writer.h"
#include "text/answers/tool.h"

namespace hocket {

class CallReader {
 public:
  virtual ~CallReader() = default;
  virtual void step(char c) = 0;
  // The answer has ended.
  virtual void finish() = 0;
};

// What a reader works with; both outlive it.
struct CallContext {
  EventWriter* writer = nullptr;
  std::span<const Tool> tools;
};

// Null for ToolFormat::none.
std::unique_ptr<CallReader> make_call_reader(ToolFormat format, CallContext context);

// One maker a family.
std::unique_ptr<CallReader> make_tagged_reader(ToolFormat format, CallContext context);
std::unique_ptr<CallReader> make_deepseek_reader(CallContext context);
std::unique_ptr<CallReader> make_json_calls_reader(ToolFormat format, CallContext context);
std::unique_ptr<CallReader> make_pythonic_reader(CallContext context);

// Marks that begin a call wherever they stand.
std::vector<std::string_view> opening_marks(ToolFormat format);

}  // namespace hocket
