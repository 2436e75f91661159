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
  std::string rest;
  for (const char c : text) {
    s.splitter.step(c, s.writer, rest);
    s.read(std::exchange(rest, {}));
  }
  s.writer.write_to(nullptr);
}

void AnswerParser::finish(std::vector<AnswerEvent>& out) {
  State& s = *state_;
  s.writer.write_to(&out);
  std::string rest;
  s.splitter.finish(s.writer, rest);
  s.read(rest);
  if (s.reader && !s.done()) s.reader->finish();
  s.writer.finish();
  s.writer.write_to(nullptr);
}

bool AnswerParser::in_reasoning() const {
  return state_->splitter.in_reasoning() || (state_->reader && state_->reader->in_reasoning());
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
