#include "text/grammar/answer_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/answers/call_reader.h"
#include "text/answers/call_shape.h"
#include "text/answers/harmony.h"
#include "text/answers/json_text.h"
#include "text/grammar/argument_rules.h"
#include "text/grammar/lark_writer.h"

namespace hocket {
namespace {

using Kind = ToolChoice::Kind;

// A model may write these blanks between its thoughts and its answer.
constexpr std::string_view kGap = "[ \\n\\r\\t]{1,8}";
// The number of a call in its conversation.
constexpr std::string_view kCallNumber = "0|[1-9][0-9]{0,3}";
// Text that no reader of bare calls takes for the beginning of a call.
constexpr std::string_view kNotBare = "[ \\n\\r\\t]*(?:[^\\[{ \\n\\r\\t](?s:.*))?";

// Returns true if calls may stand without a mark at the beginning of an answer.
bool may_be_bare(ToolFormat format) {
  return format == ToolFormat::llama3_json || format == ToolFormat::pythonic ||
         format == ToolFormat::json;
}

std::vector<std::string> strings(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

class AnswerRuleWriter {
 public:
  AnswerRuleWriter(const AnswerWish& wish, const Tokenizer& tokenizer)
      : wish_(wish),
        tokenizer_(tokenizer),
        lark_(&tokenizer, 'u'),
        marks_(wish.tools.empty() ? std::vector<std::string>()
                                  : strings(opening_marks(wish.format))) {}

  Result<std::shared_ptr<const GrammarSpec>> write() {
    const Kind kind = wish_.choice.kind;
    const bool forced = calls() && (kind == Kind::required || kind == Kind::named);
    const bool strict = calls() && std::ranges::any_of(wish_.tools, &Tool::strict);
    if (!forced && !strict && wish_.text == nullptr) return nullptr;
    if (!calls() && wish_.thoughts == ThoughtsAhead::none) return wish_.text;
    HOCKET_TRY(const std::string answer, forced ? only_calls() : calls_or_text());
    const std::string field = forced                  ? "tool_choice"
                              : wish_.text != nullptr ? wish_.text->field
                                                      : "tools";
    std::string text = lark_.finish(fmt::format("{} {}", thoughts(), answer));
    if (text.size() > kGrammarBytesMax)
      return fail(error(ErrorCode::invalid_request,
                        "what the answer may hold comes to a grammar of {} bytes, at most {} are "
                        "taken",
                        text.size(), kGrammarBytesMax)
                      .with_fix("fewer or smaller tools")
                      .with_param(field));
    return std::make_shared<const GrammarSpec>(
        GrammarSpec{.kind = GrammarKind::lark, .text = std::move(text), .field = field});
  }

 private:
  bool calls() const { return !wish_.tools.empty() && wish_.choice.kind != Kind::none; }
  bool several() const {  // a call of gpt-oss is the last message of its turn
    return wish_.parallel && wish_.choice.kind != Kind::named &&
           wish_.format != ToolFormat::gpt_oss;
  }
  // Returns a piece for `text`; nothing for an empty text.
  std::string said(std::string_view text) const { return text.empty() ? "" : lark_.text(text); }

  // A call among the thoughts would be read as a call and end them, so its marks are excluded.
  std::string thoughts() {
    const auto& [open, close, implied, channels] = wish_.reasoning;
    if (wish_.thoughts == ThoughtsAhead::none) return "";
    if (channels) {
      const std::string rest = message_up_to_next();
      return wish_.thoughts == ThoughtsAhead::open
                 ? rest
                 : fmt::format("({} {})?", lark_.text(open), rest);
    }
    const std::string blanks = fmt::format("{}?", lark_.regex(kGap));
    std::string up_to_end = fmt::format("{} {}", lark_.text_up_to(close, marks_), blanks);
    if (wish_.thoughts == ThoughtsAhead::open) return up_to_end;
    return fmt::format("({} {} {})?", blanks, lark_.text(open), up_to_end);
  }

  // Returns a piece for the rest of a message of a channel, and the beginning of the next.
  std::string message_up_to_next() {
    std::vector<std::string> others = harmony_marks();
    std::erase(others, harmony::kEnd);
    return fmt::format("{} {}", lark_.text_up_to(harmony::kEnd, others),
                       lark_.text(harmony::kNext));
  }

  static std::vector<std::string> harmony_marks() {
    return strings({harmony::kMarks.begin(), harmony::kMarks.end()});
  }

  // Returns a piece for a call, or for text in the channel of answers, perhaps after words about
  // the call. A prompt that has begun the text leaves no thoughts ahead, and no head.
  Result<std::string> call_or_channel() {
    std::string text =
        wish_.text ? lark_.grammar(*wish_.text) : lark_.text_without(harmony_marks());
    const bool begun = wish_.thoughts == ThoughtsAhead::none;
    if (!begun) text = fmt::format("{} {}", lark_.text(harmony::kFinal), text);
    if (!calls()) return text;
    HOCKET_TRY(const std::string call, only_calls());
    if (wish_.text || begun) return fmt::format("({} | {})", lark_.rule(call), text);
    return fmt::format("({} {})? ({} | {})", lark_.text(harmony::kPreamble), message_up_to_next(),
                       lark_.rule(call), text);
  }

  Result<CallShape> shape() const {
    // Newer models of Mistral have a token for this.
    if (wish_.format == ToolFormat::mistral && tokenizer_.find("[ARGS]")) return named_call_shape();
    if (const auto known = call_shape(wish_.format)) return *known;
    return fail(
        error(ErrorCode::invalid_request, "nothing tells how this model writes calls of tools")
            .with_fix("start with --tool-call-parser NAME")
            .with_param("tool_choice"));
  }

  // Returns a rule for one call of any tool; the text before its name is `open`, not shape.open.
  Result<std::string> any_call(const CallShape& shape, std::string_view open) {
    std::string all;
    for (const Tool& tool : wish_.tools) {
      if (wish_.choice.kind == Kind::named && tool.name != wish_.choice.name) continue;
      const bool free = wish_.choice.kind == Kind::automatic && !tool.strict;
      HOCKET_TRY(const std::string name, written_name(tool, shape));
      HOCKET_TRY(const std::string arguments,
                 argument_rules(tool, shape.arguments,
                                free ? ArgumentWill::any : ArgumentWill::schema, lark_, visits_));
      all += fmt::format("{}{} {} {}", all.empty() ? "" : " | ", head_of(shape, open, name),
                         arguments, said(shape.close));
    }
    if (all.empty())
      return fail(error(ErrorCode::invalid_request, "there is no tool named {}",
                        wish_.choice.name.substr(0, 64))
                      .with_param("tool_choice"));
    return lark_.rule(all);
  }

  // Returns a piece for the text of a call before its arguments.
  std::string head_of(const CallShape& shape, std::string_view open, std::string_view name) const {
    if (!shape.numbered) return lark_.text(fmt::format("{}{}{}", open, name, shape.middle));
    return fmt::format("{} {} {}", lark_.text(fmt::format("{}{}:", open, name)),
                       lark_.regex(kCallNumber), lark_.text(shape.middle));
  }

  Result<std::string> written_name(const Tool& tool, const CallShape& shape) const {
    const bool python = shape.arguments == ArgumentStyle::keywords;
    const bool bare = shape.open == named_call_shape().open;
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '.' || c == '-';
    };
    if ((python && !std::ranges::all_of(tool.name, is_letter)) ||
        (bare && tool.name.find_first_of("[{") != tool.name.npos))
      return fail(error(ErrorCode::invalid_request,
                        "this model cannot write the name of the tool {}", tool.name.substr(0, 64))
                      .with_fix("use letters, digits and underscores")
                      .with_param("tools"));
    if (!shape.open.ends_with("\"name\": \"")) return tool.name;
    const std::string quoted = quoted_json(tool.name);
    return quoted.substr(1, quoted.size() - 2);
  }

  std::string list_of(const CallShape& shape, std::string_view first, std::string_view call) const {
    const std::string more =
        several() ? fmt::format("({} {})*", said(shape.between), call) : std::string();
    return fmt::format("{} {} {} {}", first, call, more, said(shape.last));
  }

  // Returns a piece for an answer of calls and nothing else.
  Result<std::string> only_calls() {
    HOCKET_TRY(CallShape shape, this->shape());
    if (wish_.format == ToolFormat::json && !several()) shape.first = shape.last = {};
    HOCKET_TRY(const std::string call, any_call(shape, shape.open));
    return list_of(shape, said(shape.first), call);
  }

  Result<std::string> calls_or_text() {
    if (wish_.reasoning.channels) return call_or_channel();
    if (!calls()) return lark_.grammar(*wish_.text);
    if (wish_.text == nullptr)
      return may_be_bare(wish_.format) ? calls_or_other_text() : calls_in_text();
    std::string text = lark_.grammar(*wish_.text);
    // Without a mark, a call looks like text that begins in the same way.
    std::string begun;
    if (may_be_bare(wish_.format)) {
      if (marks_.empty() || !tokenizer_.special_at(marks_.front())) return text;
      begun = lark_.text(marks_.front());
    }
    HOCKET_TRY(const std::string calls, only_calls());
    return fmt::format("({} {} | {})", begun, lark_.rule(calls), text);
  }

  // Returns a piece for free text in which a mark begins a call. Calls follow one another without
  // text between them.
  Result<std::string> calls_in_text() {
    HOCKET_TRY(const CallShape shape, this->shape());
    const std::string mark = marks_.front();
    const std::vector<std::string> others(marks_.begin() + 1, marks_.end());
    // The mark is written already: it is the beginning of `first`, or all of `first` and a part of
    // `open`.
    std::string head(shape.first), open(shape.open);
    const size_t of_first = std::min(mark.size(), head.size());
    head.erase(0, of_first);
    open.erase(0, mark.size() - of_first);
    HOCKET_TRY(const std::string begun, any_call(shape, open));
    std::string more;
    if (several() && !shape.last.empty()) {  // several calls follow one mark
      HOCKET_TRY(const std::string call, any_call(shape, shape.open));
      more = fmt::format("({} {})*", said(shape.between), call);
    }
    const std::string calls = fmt::format("{} {} {} {} {}", lark_.text_up_to(mark, others),
                                          said(head), begun, more, said(shape.last));
    return fmt::format("({}){} {}", calls, several() ? "*" : "?", lark_.text_without(marks_));
  }

  // Returns a piece for calls that need no mark, or for text that does not begin like a call.
  Result<std::string> calls_or_other_text() {
    HOCKET_TRY(const std::string calls, only_calls());
    const std::string rule = lark_.rule(calls);
    std::string all = rule;
    for (const std::string& mark : marks_)
      if (tokenizer_.special_at(mark)) all += fmt::format(" | {} {}", lark_.text(mark), rule);
    TextForm other{.regex = std::string(kNotBare), .but_for = {}};
    if (!marks_.empty()) other.but_for.push_back(regex_of_texts_with(marks_));
    return fmt::format("({} | {})", all, lark_.text_of(other));
  }

  const AnswerWish& wish_;
  const Tokenizer& tokenizer_;
  LarkWriter lark_;
  SchemaVisits visits_;
  std::vector<std::string> marks_;  // marks that begin calls
};

}  // namespace

Result<std::shared_ptr<const GrammarSpec>> grammar_of_answer(const AnswerWish& wish,
                                                             const Tokenizer& tokenizer) {
  if (wish.format != ToolFormat::gpt_oss || wish.reasoning.channels)
    return AnswerRuleWriter(wish, tokenizer).write();
  // The model writes channels even if nobody wants to see them apart.
  AnswerWish told = wish;
  HOCKET_TRY(told.reasoning, choose_reasoning_format("gpt-oss", ""));
  told.thoughts = ThoughtsAhead::possible;
  return AnswerRuleWriter(told, tokenizer).write();
}

}  // namespace hocket
