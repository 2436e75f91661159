// One call between its marks, in one of the ways in which families write it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "text/answers/call_reader.h"

namespace hocket {

class CallBody {
 public:
  virtual ~CallBody() = default;

  enum class Step : uint8_t {
    more,
    done,   // the byte was the call's last; it has been told whole
    over,   // told whole; the byte is not part of it
    wrong,  // no call; why() tells. The writer has it open, and the byte is not part of it
  };
  virtual Step step(char c) = 0;
  // The text has ended. Whether that left a whole call, which is told then.
  virtual bool finish() = 0;
  std::string_view why() const { return why_; }

 protected:
  Step fail(std::string_view why) {
    why_ = why;
    return Step::wrong;
  }

 private:
  std::string_view why_ = "the answer ends within it";
};

// <function=f> <parameter=p>value</parameter> ... </function>, from "<function=" on or behind it.
enum class XmlBegin : uint8_t { tag, name };
std::unique_ptr<CallBody> make_xml_body(ToolFormat format, CallContext context, XmlBegin begin);
// f <arg_key>k</arg_key> <arg_value>v</arg_value> ... </tool_call>
std::unique_ptr<CallBody> make_arg_key_body(CallContext context);
// f[ARGS]{...}
std::unique_ptr<CallBody> make_named_body(CallContext context);

}  // namespace hocket
