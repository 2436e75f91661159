// Reads one call between its marks, in one of the formats that families use.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "text/answers/call_reader.h"

namespace hocket {

inline constexpr std::string_view kEndCallMark = "</tool_call>";  // in several families
inline constexpr std::string_view kEndBareKeyCall = "<tool_call|>";

class CallBody {
 public:
  virtual ~CallBody() = default;

  enum class Step : uint8_t {
    more,
    done,   // the byte was the call's last; the writer has the whole call
    over,   // the call ended before this byte; the writer has the whole call
    wrong,  // no call, see why(); the writer still has it open, and the byte is not part of it
  };
  virtual Step step(char c) = 0;
  // Ends the text. Returns true if the call is whole; the writer then has it.
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

// The marks of families that write calls in the manner of XML.
struct XmlMarks {
  std::string_view function, parameter, end_function, end_call;
  // Marks that end a value at the beginning of a line, because its own end mark was forgotten.
  std::string_view parameter_line, end_function_line;
};
const XmlMarks& xml_marks(ToolFormat format);
// Reads <function=f> <parameter=p>value</parameter> ... </function>, from "<function=" on or after
// it; likewise <invoke name="f"> <parameter name="p">...</invoke>.
enum class XmlBegin : uint8_t { tag, name };
std::unique_ptr<CallBody> make_xml_body(ToolFormat format, CallContext context, XmlBegin begin);
// Reads f <arg_key>k</arg_key> <arg_value>v</arg_value> ... </tool_call>.
std::unique_ptr<CallBody> make_arg_key_body(CallContext context);
// Reads call:f{a:1,b:<|"|>text<|"|>}.
std::unique_ptr<CallBody> make_bare_key_body(CallContext context);
// Reads f[ARGS]{...}.
std::unique_ptr<CallBody> make_named_body(CallContext context);

}  // namespace hocket
