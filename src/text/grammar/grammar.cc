#include "text/grammar/grammar.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/thread.h"
#include "text/tokens/files.h"
#include "text/tokens/rust.h"

namespace hocket {
namespace {

// Later lines may quote the request or the answer, so they are left out.
std::string first_line_of_error() {
  std::string text = rust::last_error();
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

std::string_view kind_name(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::json_schema:
      return "json_schema";
    case GrammarKind::regex:
      return "regex";
    case GrammarKind::lark:
      return "lark";
  }
  std::unreachable();
}

std::unexpected<Error> cannot_go_on() {
  return fail(ErrorCode::invalid_request, "the grammar cannot be followed any further: {}",
              first_line_of_error());
}

}  // namespace

void GrammarMatcher::Free::operator()(HkMatcher* m) const {
  hk_matcher_free(m);
}

void GrammarVocabulary::Free::operator()(HkGrammar* g) const {
  hk_grammar_free(g);
}

Result<void> GrammarMatcher::mask(std::span<uint32_t> words) {
  if (hk_matcher_mask(handle_.get(), words.data(), words.size()) != 0) return cannot_go_on();
  return {};
}

Result<GrammarState> GrammarMatcher::accept(TokenId token) {
  uint32_t bits = 0;
  if (hk_matcher_accept(handle_.get(), static_cast<uint32_t>(value(token))) != 0 ||
      hk_matcher_state(handle_.get(), &bits) != 0)
    return cannot_go_on();
  return GrammarState{.may_end = (bits & 1) != 0, .ended = (bits & 2) != 0};
}

size_t GrammarMatcher::num_bytes() const {
  return hk_matcher_bytes(handle_.get());
}

std::vector<TokenId> GrammarMatcher::forced() {
  rust::Buffer ids;
  if (hk_matcher_forced(handle_.get(), ids.out()) != 0) return {};
  return ids.values<TokenId>();
}

Result<size_t> GrammarMatcher::num_allowed(std::span<const TokenId> tokens) {
  size_t count = 0;
  const auto* ids = reinterpret_cast<const uint32_t*>(tokens.data());
  if (hk_matcher_allowed(handle_.get(), ids, tokens.size(), &count) != 0) return cannot_go_on();
  return count;
}

GrammarMatcher Grammar::begin() const {
  const MutexLock lock(mutex_);
  HkMatcher* copy = nullptr;
  HOCKET_CHECK(hk_matcher_copy(fresh_.handle_.get(), &copy) == 0);
  return GrammarMatcher(copy);
}

Result<GrammarVocabulary> GrammarVocabulary::create(const Source& source, int num_logits,
                                                    std::span<const TokenId> end_ids) {
  HOCKET_TRY(const std::string json,
             read_model_file(source.folder, "tokenizer.json", ErrorCode::bad_tokenizer));
  HkGrammar* handle = nullptr;
  const auto* ends = reinterpret_cast<const uint32_t*>(end_ids.data());
  if (hk_grammar_new(source.tokenizer, json.data(), json.size(), static_cast<size_t>(num_logits),
                     ends, end_ids.size(), &handle) != 0)
    return fail(ErrorCode::bad_tokenizer, "{} gives no vocabulary for grammars: {}",
                (source.folder / "tokenizer.json").string(), first_line_of_error());
  return GrammarVocabulary(handle, (static_cast<size_t>(num_logits) + 31) / 32);
}

Result<std::shared_ptr<const Grammar>> GrammarVocabulary::compile(const GrammarSpec& spec) const {
  std::optional<Result<std::shared_ptr<const Grammar>>> made;
  try {
    Thread compiling({.name = "compile", .stack_bytes = kCompileStackBytes},
                     [&] { made = compile_here(spec); });
    compiling.join();
  } catch (const std::system_error& e) {
    return fail(ErrorCode::out_of_memory, "a grammar cannot be compiled now: {}", e.what());
  }
  return *std::move(made);
}

Result<std::shared_ptr<const Grammar>> GrammarVocabulary::compile_here(
    const GrammarSpec& spec) const {
  const std::string_view kind = kind_name(spec.kind);
  HkMatcher* handle = nullptr;
  if (hk_matcher_new(handle_.get(), kind.data(), kind.size(), spec.text.data(), spec.text.size(),
                     &handle) != 0)
    return fail(error(ErrorCode::invalid_request, "{}{}this cannot be made a grammar: {}",
                      spec.field, spec.field.empty() ? "" : ": ", first_line_of_error())
                    .with_param(spec.field));
  return std::shared_ptr<const Grammar>(new Grammar(handle));
}

}  // namespace hocket
