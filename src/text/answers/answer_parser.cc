#include "text/answers/answer_parser.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mix.h"
#include "text/answers/call_reader.h"
#include "text/answers/event_writer.h"
#include "text/answers/harmony.h"
#include "text/answers/reasoning.h"

namespace hocket {
namespace {

std::span<const Tool> tools_of(const AnswerParser::Options& options) {
  if (options.tools == nullptr) return {};
  return *options.tools;
}

// The reader of channels separates reasoning from the answer itself.
ReasoningFormat split_off(const AnswerParser::Options& options) {
  return options.reasoning.channels ? ReasoningFormat() : options.reasoning;
}

std::unique_ptr<CallReader> reader_of(const AnswerParser::Options& options, EventWriter* writer) {
  const CallContext context = {.writer = writer, .tools = tools_of(options)};
  if (!options.reasoning.channels) return make_call_reader(options.tools_as, context);
  return make_harmony_reader({.reasoning = true,
                              .calls = options.tools_as == ToolFormat::gpt_oss,
                              .open = options.reasoning_open},
                             context);
}

// gpt-oss ends its turn with a call.
int allowed_calls(const AnswerParser::Options& options) {
  return options.tools_as == ToolFormat::gpt_oss ? std::min(options.max_calls, 1)
                                                 : options.max_calls;
}

}  // namespace

struct AnswerParser::State {
  explicit State(Options given)
      : options(std::move(given)),
        writer(options.tools_as, options.id_seed),
        splitter(split_off(options), options.reasoning_open, opening_marks(options.tools_as)),
        reader(reader_of(options, &writer)) {}

  bool done() const { return writer.num_whole() >= allowed_calls(options); }

  void step(char c) {
    if (splitter.is_undecided() && done()) return;
    std::string rest;
    const bool was_undecided = splitter.is_undecided();
    splitter.step(c, writer, rest);
    if (!splitter.is_undecided()) return read(rest);
    if (!was_undecided) writer.await_calls();
    if (splitter.is_closed()) return take_as_thought();
    read(rest);
    if (writer.missed_calls())
      take_as_thought();
    else if (writer.num_whole() > 0 && splitter.num_kept() >= kMaxHeld)
      take_as_calls();
  }

  void take_as_calls() {
    writer.take_awaited();
    splitter.take_as_calls();
  }

  void take_as_thought() {
    writer.drop_awaited();
    reader = reader_of(options, &writer);
    std::string rest;
    splitter.take_as_thought(writer, rest);
    read(rest);
  }

  // Returns true if the end of the answer ended its call.
  bool decide_at_end() {
    const bool has_whole = writer.num_whole() > 0;
    if (!has_whole) reader->finish();
    const bool is_call = writer.num_whole() > 0 && !writer.missed_calls();
    if (is_call)
      take_as_calls();
    else
      take_as_thought();
    return is_call && !has_whole;
  }

  void finish() {
    const bool is_read = splitter.is_undecided() && decide_at_end();
    std::string rest;
    splitter.finish(writer, rest);
    read(rest);
    if (reader && !is_read && !done()) reader->finish();
    writer.finish();
  }

  void read(std::string_view rest) {
    for (const char c : rest) {
      if (done()) return;
      if (reader)
        reader->step(c);
      else
        writer.prose(c);
    }
  }

  Options options;
  EventWriter writer;
  ReasoningSplitter splitter;
  std::unique_ptr<CallReader> reader;  // null: calls are plain text
};

AnswerParser::AnswerParser(Options options) : state_(std::make_unique<State>(std::move(options))) {}

AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

void AnswerParser::push(std::string_view text, std::vector<AnswerEvent>& out) {
  State& s = *state_;
  s.writer.write_to(&out);
  for (const char c : text) s.step(c);
  s.writer.write_to(nullptr);
}

void AnswerParser::finish(std::vector<AnswerEvent>& out) {
  State& s = *state_;
  s.writer.write_to(&out);
  s.finish();
  s.writer.write_to(nullptr);
}

bool AnswerParser::in_reasoning() const {
  return state_->splitter.in_reasoning() || (state_->reader && state_->reader->in_reasoning());
}

bool AnswerParser::may_be_calls() const {
  return state_->splitter.is_undecided();
}

bool AnswerParser::calls_ended_reasoning() const {
  return state_->splitter.is_ended_by_calls();
}

bool AnswerParser::done() const {
  return state_->done();
}

const std::vector<std::string>& AnswerParser::warnings() const {
  return state_->writer.warnings();
}

std::string call_id(ToolFormat format, uint64_t id_seed, int index) {
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool is_short = format == ToolFormat::mistral;
  std::string id = is_short ? "" : "call_";
  const size_t size = is_short ? 9 : id.size() + 24;
  for (uint64_t block = 0; id.size() < size; ++block) {
    uint64_t bits = mix64(id_seed + kMixStep * (static_cast<uint64_t>(index) * 4 + block + 1));
    for (int i = 0; i < 8 && id.size() < size; ++i, bits >>= 8) id += kDigits[bits % 62];
  }
  return id;
}

}  // namespace hocket
