#include "text/tokens/golden_cases.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "text/tokens/chat_template.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/files.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

namespace {

using Json = nlohmann::ordered_json;

Result<Json> read_json(const std::filesystem::path& file) {
  HOCKET_TRY(const std::string text, read_file(file, ErrorCode::io));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return fail(ErrorCode::io, "{} is not JSON", file.string());
  return json;
}

void expect(GoldenLine& line, std::string_view about, const Json& want, const Json& got) {
  ++line.cases;
  if (got == want) return;
  if (line.failed++ > 0) return;
  const auto show = [](const Json& j) {
    return j.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  line.first_failure = fmt::format("{}: want {}, got {}", about, show(want), show(got));
}

Json ids_json(const Result<std::vector<TokenId>>& ids) {
  if (!ids) return ids.error().message;
  Json list = Json::array();
  for (const TokenId id : *ids) list.push_back(value(id));
  return list;
}

std::vector<TokenId> ids_of(const Json& list) {
  std::vector<TokenId> ids;
  for (const Json& id : list) ids.push_back(TokenId{id.get<int32_t>()});
  return ids;
}

class TokenizerCases {
 public:
  TokenizerCases(const Tokenizer& tokenizer, const std::string& name) : tokenizer_(tokenizer) {
    for (const char* part : {"encode", "special", "special as text", "decode", "stream"}) {
      lines_.push_back({.name = fmt::format("tokenizers/{} {}", name, part),
                        .cases = 0,
                        .failed = 0,
                        .first_failure = {}});
    }
  }

  void encode(const Json& c) {
    const std::string text = c["text"], about = c["about"];
    const auto run = [&](bool add, bool parse) {
      return ids_json(
          tokenizer_.encode(text, {.add_special_tokens = add, .parse_special_tokens = parse}));
    };
    expect(lines_[0], about, c["ids"], run(false, true));
    expect(lines_[1], about, c["ids_with_special"], run(true, true));
    expect(lines_[2], about, c["ids_special_as_text"], run(false, false));
    const auto ids = ids_of(c["ids"]);
    decode(about, ids, c["decoded"], SpecialTokens::keep);
    decode(about, ids, c["decoded_skip_special"], SpecialTokens::skip);
    stream(about, ids, {c["stream"], nullptr, c["decoded"]}, SpecialTokens::keep);
  }

  void decode_case(const Json& c) {
    const std::string about = c["about"];
    const auto ids = ids_of(c["ids"]);
    decode(about, ids, c["decoded"], SpecialTokens::keep);
    decode(about, ids, c["decoded_skip_special"], SpecialTokens::skip);
    stream(about, ids, {c["stream"], c["flush"], c["decoded"]}, SpecialTokens::keep);
    stream(about, ids,
           {c["stream_skip_special"], c["flush_skip_special"], c["decoded_skip_special"]},
           SpecialTokens::skip);
  }

  const std::vector<GoldenLine>& lines() const { return lines_; }

 private:
  void decode(const std::string& about, const std::vector<TokenId>& ids, const Json& want,
              SpecialTokens special) {
    const auto text = tokenizer_.decode(ids, special);
    expect(lines_[3], about, want, text ? *text : text.error().message);
  }

  struct Expected {
    Json pieces, flush, joined;  // flush is null if the case does not give it
  };
  void stream(const std::string& about, const std::vector<TokenId>& ids, const Expected& want,
              SpecialTokens special) {
    Detokenizer detokenizer(tokenizer_, special);
    Json pieces = Json::array();
    std::string joined;
    for (const TokenId id : ids) {
      const std::string piece(detokenizer.step(id));
      pieces.push_back(piece);
      joined += piece;
    }
    const std::string rest(detokenizer.flush());
    expect(lines_[4], about, want.pieces, pieces);
    if (!want.flush.is_null()) expect(lines_[4], about + ", flush", want.flush, rest);
    expect(lines_[4], about + ", joined", want.joined, joined + rest);
  }

  const Tokenizer& tokenizer_;
  std::vector<GoldenLine> lines_;
};

Result<std::chrono::local_seconds> parse_time(const std::string& text) {
  std::tm tm{};
  std::istringstream in(text);
  in >> std::get_time(&tm, "%Y-%m-%dT%H:%M:%S");
  if (in.fail()) return fail(ErrorCode::io, "'{}' is not a time", text);
  return std::chrono::local_seconds(std::chrono::seconds(timegm(&tm)));
}

Json render(const ChatTemplate& chat, const Json& c, std::chrono::local_seconds now) {
  ChatInput input;
  input.messages = c["messages"];
  input.tools = c["tools"];
  input.kwargs = c["kwargs"];
  for (const char* name : {"bos_token", "eos_token"}) {
    if (!input.kwargs.contains(name)) input.kwargs[name] = c[name];
  }
  input.add_generation_prompt = c["add_generation_prompt"];
  input.continue_final_message = c["continue_final_message"];
  input.now = now;
  const auto prompt = chat.render(input);
  return prompt ? Json(prompt->text()) : Json{{"error", prompt.error().message}};
}

}  // namespace

Result<std::vector<GoldenLine>> check_tokenizer(const Tokenizer& tokenizer,
                                                const std::filesystem::path& folder) {
  HOCKET_TRY(const Json reference, read_json(folder / "reference.json"));
  TokenizerCases cases(tokenizer, folder.filename());
  try {
    for (const Json& c : reference.at("encode")) cases.encode(c);
    for (const Json& c : reference.at("decode")) cases.decode_case(c);
  } catch (const Json::exception& e) {
    return fail(ErrorCode::io, "{}/reference.json: {}", folder.string(), e.what());
  }
  return cases.lines();
}

Result<std::vector<GoldenLine>> check_tokenizer_golden(const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> folders;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ec)) {
    if (std::filesystem::exists(entry.path() / "reference.json")) folders.push_back(entry.path());
  }
  if (folders.empty()) return fail(ErrorCode::io, "{} holds no tokenizer cases", dir.string());
  std::ranges::sort(folders);
  std::vector<GoldenLine> lines;
  for (const auto& folder : folders) {
    HOCKET_TRY(const Tokenizer tokenizer, Tokenizer::load(folder));
    HOCKET_TRY(const std::vector<GoldenLine> more, check_tokenizer(tokenizer, folder));
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

Result<std::vector<GoldenLine>> check_chat_golden(const std::filesystem::path& dir) {
  HOCKET_TRY(const Json reference, read_json(dir / "reference.json"));
  std::map<std::string, GoldenLine> lines;
  try {
    HOCKET_TRY(const auto now, parse_time(reference.at("now")));
    for (const Json& c : reference.at("cases")) {
      const std::string name = c.at("template");
      HOCKET_TRY(const std::string source, read_file(dir / (name + ".jinja"), ErrorCode::io));
      HOCKET_TRY(const ChatTemplate chat, ChatTemplate::from_source(source, nullptr));
      const Json want = c.contains("error") ? Json{{"error", c["error"]}} : c.at("rendered");
      GoldenLine& line = lines[name];
      line.name = "chat/" + name;
      expect(line, c.at("about").get<std::string>(), want, render(chat, c, now));
    }
  } catch (const Json::exception& e) {
    return fail(ErrorCode::io, "{}/reference.json: {}", dir.string(), e.what());
  }
  std::vector<GoldenLine> list;
  list.reserve(lines.size());
  for (auto& [name, line] : lines) list.push_back(std::move(line));
  return list;
}

}  // namespace hocket
