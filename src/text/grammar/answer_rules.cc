#include "text/grammar/answer_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/answers/call_reader.h"
#include "text/answers/call_syntax.h"
#include "text/answers/harmony.h"
#include "text/answers/json_pieces.h"
#include "text/grammar/argument_rules.h"
#include "text/grammar/lark_writer.h"

namespace hocket {
namespace {

using Kind = ToolChoice::Kind;

// A model may write these blanks between its reasoning and its answer.
constexpr std::string_view kGap = "[ \\n\\r\\t]{1,8}";
// The number of a call in its conversation.
constexpr std::string_view kCallNumber = "0|[1-9][0-9]{0,3}";
// Text that no reader of bare calls takes for the beginning of a call.
constexpr std::string_view kNotBare = "[ \\n\\r\\t]*(?:[^\\[{ \\n\\r\\t](?s:.*))?";

// Returns true if calls may be written without a mark at the beginning of an answer.
bool may_be_bare(ToolFormat format) {
  return format == ToolFormat::llama3_json || format == ToolFormat::pythonic ||
         format == ToolFormat::json;
}

std::vector<std::string> strings(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

class AnswerRuleWriter {
 public:
  AnswerRuleWriter(const AnswerSpec& spec, const Tokenizer& tokenizer)
      : spec_(spec),
        tokenizer_(tokenizer),
        lark_(&tokenizer, 'u'),
        marks_(spec.tools.empty() ? std::vector<std::string>()
                                  : strings(opening_marks(spec.format))) {}

  Result<std::shared_ptr<const GrammarSpec>> write() {
    const Kind kind = spec_.choice.kind;
    const bool forced = calls() && (kind == Kind::required || kind == Kind::named);
    const bool strict = calls() && std::ranges::any_of(spec_.tools, &Tool::strict);
    if (!forced && !strict && spec_.text == nullptr) return nullptr;
    if (!calls() && spec_.reasoning_start == ReasoningStart::none) return spec_.text;
    HOCKET_TRY(const std::string answer, forced ? only_calls() : calls_or_text());
    const std::string field = forced                  ? "tool_choice"
                              : spec_.text != nullptr ? spec_.text->field
                                                      : "tools";
    std::string text = lark_.finish(fmt::format("{} {}", reasoning(), answer));
    if (text.size() > kMaxGrammarBytes)
      return fail(error(ErrorCode::invalid_request,
                        "what the answer may hold comes to a grammar of {} bytes, at most {} are "
                        "taken",
                        text.size(), kMaxGrammarBytes)
                      .with_fix("fewer or smaller tools")
                      .with_param(field));
    return std::make_shared<const GrammarSpec>(
        GrammarSpec{.kind = GrammarKind::lark, .text = std::move(text), .field = field});
  }

 private:
  bool calls() const { return !spec_.tools.empty() && spec_.choice.kind != Kind::none; }
  bool several() const {  // a call of gpt-oss is the last message of its turn
    return spec_.parallel && spec_.choice.kind != Kind::named &&
           spec_.format != ToolFormat::gpt_oss;
  }
  // Returns a piece for `text`; nothing for an empty text.
  std::string literal(std::string_view text) const { return text.empty() ? "" : lark_.text(text); }

  // A call within the reasoning would be read as a call and end it, so its marks are excluded.
  std::string reasoning() {
    const auto& [open, close, implied, channels] = spec_.reasoning;
    if (spec_.reasoning_start == ReasoningStart::none) return "";
    if (channels) {
      const std::string rest = message_up_to_next();
      return spec_.reasoning_start == ReasoningStart::open
                 ? rest
                 : fmt::format("({} {})?", lark_.text(open), rest);
    }
    const std::string blanks = fmt::format("{}?", lark_.regex(kGap));
    std::string up_to_end = fmt::format("{} {}", lark_.text_up_to(close, marks_), blanks);
    if (spec_.reasoning_start == ReasoningStart::open) return up_to_end;
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
  // the call. After a prompt that has begun the text come no reasoning and no head.
  Result<std::string> call_or_channel() {
    std::string text =
        spec_.text ? lark_.grammar(*spec_.text) : lark_.text_without(harmony_marks());
    const bool begun = spec_.reasoning_start == ReasoningStart::none;
    if (!begun) text = fmt::format("{} {}", lark_.text(harmony::kFinal), text);
    if (!calls()) return text;
    HOCKET_TRY(const std::string call, only_calls());
    if (spec_.text || begun) return fmt::format("({} | {})", lark_.rule(call), text);
    return fmt::format("({} {})? ({} | {})", lark_.text(harmony::kPreamble), message_up_to_next(),
                       lark_.rule(call), text);
  }

  Result<CallSyntax> syntax() const {
    // Newer models of Mistral have a token for this.
    if (spec_.format == ToolFormat::mistral && tokenizer_.find("[ARGS]"))
      return named_call_syntax();
    if (const auto known = call_syntax(spec_.format)) return *known;
    return fail(error(ErrorCode::invalid_request, "how this model writes tool calls is not known")
                    .with_fix("start with --tool-call-parser NAME")
                    .with_param("tool_choice"));
  }

  // Returns a rule for one call of any tool; the text before its name is `open`, not syntax.open.
  Result<std::string> any_call(const CallSyntax& syntax, std::string_view open) {
    std::string all;
    for (const Tool& tool : spec_.tools) {
      if (spec_.choice.kind == Kind::named && tool.name != spec_.choice.name) continue;
      const bool free = spec_.choice.kind == Kind::automatic && !tool.strict;
      HOCKET_TRY(const std::string name, written_name(tool, syntax));
      HOCKET_TRY(const std::string arguments,
                 argument_rules(tool, syntax.arguments,
                                free ? ArgumentCheck::any : ArgumentCheck::schema, lark_, visits_));
      all += fmt::format("{}{} {} {}", all.empty() ? "" : " | ", head_of(syntax, open, name),
                         arguments, literal(syntax.close));
    }
    if (all.empty())
      return fail(error(ErrorCode::invalid_request, "there is no tool named {}",
                        spec_.choice.name.substr(0, 64))
                      .with_param("tool_choice"));
    return lark_.rule(all);
  }

  // Returns a piece for the text of a call before its arguments.
  std::string head_of(const CallSyntax& syntax, std::string_view open,
                      std::string_view name) const {
    if (!syntax.numbered) return lark_.text(fmt::format("{}{}{}", open, name, syntax.middle));
    return fmt::format("{} {} {}", lark_.text(fmt::format("{}{}:", open, name)),
                       lark_.regex(kCallNumber), lark_.text(syntax.middle));
  }

  Result<std::string> written_name(const Tool& tool, const CallSyntax& syntax) const {
    const bool python = syntax.arguments == ArgumentStyle::keywords;
    const bool bare = syntax.open == named_call_syntax().open;
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
    if (!syntax.open.ends_with("\"name\": \"")) return tool.name;
    const std::string quoted = quoted_json(tool.name);
    return quoted.substr(1, quoted.size() - 2);
  }

  std::string list_of(const CallSyntax& syntax, std::string_view first,
                      std::string_view call) const {
    const std::string more =
        several() ? fmt::format("({} {})*", literal(syntax.between), call) : std::string();
    return fmt::format("{} {} {} {}", first, call, more, literal(syntax.last));
  }

  // Returns a piece for an answer of calls and nothing else.
  Result<std::string> only_calls() {
    HOCKET_TRY(CallSyntax syntax, this->syntax());
    if (spec_.format == ToolFormat::json && !several()) syntax.first = syntax.last = {};
    HOCKET_TRY(const std::string call, any_call(syntax, syntax.open));
    return list_of(syntax, literal(syntax.first), call);
  }

  Result<std::string> calls_or_text() {
    if (spec_.reasoning.channels) return call_or_channel();
    if (!calls()) return lark_.grammar(*spec_.text);
    if (spec_.text == nullptr)
      return may_be_bare(spec_.format) ? calls_or_other_text() : calls_in_text();
    std::string text = lark_.grammar(*spec_.text);
    // Without a mark, a call looks like text that begins in the same way.
    std::string begun;
    if (may_be_bare(spec_.format)) {
      if (marks_.empty() || !tokenizer_.special_at(marks_.front())) return text;
      begun = lark_.text(marks_.front());
    }
    HOCKET_TRY(const std::string calls, only_calls());
    return fmt::format("({} {} | {})", begun, lark_.rule(calls), text);
  }

  // Returns a piece for free text in which a mark begins a call. Calls follow one another without
  // text between them.
  Result<std::string> calls_in_text() {
    HOCKET_TRY(const CallSyntax syntax, this->syntax());
    const std::string mark = marks_.front();
    const std::vector<std::string> others(marks_.begin() + 1, marks_.end());
    // The mark is written already: it is the beginning of `first`, or all of `first` and a part of
    // `open`.
    std::string head(syntax.first), open(syntax.open);
    const size_t of_first = std::min(mark.size(), head.size());
    head.erase(0, of_first);
    open.erase(0, mark.size() - of_first);
    HOCKET_TRY(const std::string begun, any_call(syntax, open));
    std::string more;
    if (several() && !syntax.last.empty()) {  // several calls follow one mark
      HOCKET_TRY(const std::string call, any_call(syntax, syntax.open));
      more = fmt::format("({} {})*", literal(syntax.between), call);
    }
    const std::string calls = fmt::format("{} {} {} {} {}", lark_.text_up_to(mark, others),
                                          literal(head), begun, more, literal(syntax.last));
    return fmt::format("({}){} {}", calls, several() ? "*" : "?", lark_.text_without(marks_));
  }

  // Returns a piece for calls that need no mark, or for text that does not begin like a call.
  Result<std::string> calls_or_other_text() {
    HOCKET_TRY(const std::string calls, only_calls());
    const std::string rule = lark_.rule(calls);
    std::string all = rule;
    for (const std::string& mark : marks_)
      if (tokenizer_.special_at(mark)) all += fmt::format(" | {} {}", lark_.text(mark), rule);
    TextPattern other{.regex = std::string(kNotBare), .but_for = {}};
    if (!marks_.empty()) other.but_for.push_back(regex_of_texts_with(marks_));
    return fmt::format("({} | {})", all, lark_.text_of(other));
  }

  const AnswerSpec& spec_;
  const Tokenizer& tokenizer_;
  LarkWriter lark_;
  SchemaVisits visits_;
  std::vector<std::string> marks_;  // marks that begin calls
};

}  // namespace

Result<std::shared_ptr<const GrammarSpec>> grammar_of_answer(const AnswerSpec& spec,
                                                             const Tokenizer& tokenizer) {
  if (spec.format != ToolFormat::gpt_oss || spec.reasoning.channels)
    return AnswerRuleWriter(spec, tokenizer).write();
  // The model writes channels even if the client does not want them separated.
  AnswerSpec own = spec;
  HOCKET_TRY(own.reasoning, choose_reasoning_format("gpt-oss", ""));
  own.reasoning_start = ReasoningStart::possible;
  return AnswerRuleWriter(own, tokenizer).write();
}

}  // namespace hocket
