// Grammars for answers (llguidance, in rust/). A grammar is compiled once and copied for each
// answer. The copy, a matcher, tells before each token which tokens may come.
//
//   GrammarVocabulary --compile--> Grammar --begin--> GrammarMatcher: mask, accept, mask, ...
//
// An answer's masks depend on its grammar and its own tokens alone: copies share nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/grammar.h"
#include "text/tokenizer.h"

struct HkGrammar;
struct HkMatcher;

namespace hocket {

// Stack of a compilation: four times what the deepest grammar that rust/src/grammar_bounds.rs lets
// through needs. Only pages that are used take memory.
inline constexpr size_t kCompileStackBytes = 256 << 20;

// Where an answer stands after a token.
struct GrammarState {
  bool may_end = false;  // the text is whole
  bool ended = false;    // nothing but an end token may follow
};

// One answer's way through its grammar.   Thread: one at a time.
class GrammarMatcher {
 public:
  // Writes one bit for each token: bit i % 32 of word i / 32 is set if token i may come. End tokens
  // may come where the text may end. At least one bit is set.
  // Errors: invalid_request when the grammar is too ambiguous to go on with.
  Result<void> mask(std::span<uint32_t> words);
  // Errors: invalid_request for a token that the mask does not hold, or as mask().
  Result<GrammarState> accept(TokenId token);
  // Tokens that must follow; empty where there is a choice.
  std::vector<TokenId> forced();
  // Memory that it holds, which grows with its calls. From 64 MiB on all other calls fail.
  size_t num_bytes() const;

 private:
  friend class Grammar;
  struct Free {
    void operator()(HkMatcher* m) const;
  };
  explicit GrammarMatcher(HkMatcher* handle) : handle_(handle) {}
  std::unique_ptr<HkMatcher, Free> handle_;
};

// A compiled grammar.   Thread: any.
class Grammar {
 public:
  GrammarMatcher begin() const;
  // Memory that it holds; each matcher of begin() holds about as much.
  size_t num_bytes() const { return fresh_.num_bytes(); }

 private:
  friend class GrammarVocabulary;
  explicit Grammar(HkMatcher* fresh) : fresh_(fresh) {}
  mutable std::mutex mutex_;
  const GrammarMatcher fresh_;
};

// The vocabulary as grammars see it: a trie of all tokens' bytes. Takes some 5 us a token to make.
// Thread: any.
class GrammarVocabulary {
 public:
  // create() reads both; the vocabulary that it makes does not need the tokenizer.
  struct Source {
    const HkTokenizer* tokenizer = nullptr;
    std::filesystem::path folder;  // of tokenizer.json
  };
  // num_logits: the width of masks. end_ids: the model's, one at least.
  // Errors: bad_tokenizer.
  static Result<GrammarVocabulary> create(const Source& source, int num_logits,
                                          std::span<const TokenId> end_ids);

  // Runs on a thread of its own, with a stack of kCompileStackBytes. Its time and memory are not
  // bounded here, hence engine/grammar/grammar_trials.h.
  // Errors: invalid_request, which names spec.field, with the first line of llguidance's message;
  // out_of_memory where that thread cannot be started.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) const;
  // The length of a mask, in words of 32 bits.
  size_t mask_words() const { return mask_words_; }

 private:
  struct Free {
    void operator()(HkGrammar* g) const;
  };
  GrammarVocabulary(HkGrammar* handle, size_t mask_words)
      : handle_(handle), mask_words_(mask_words) {}
  Result<std::shared_ptr<const Grammar>> compile_here(const GrammarSpec& spec) const;
  std::unique_ptr<HkGrammar, Free> handle_;
  size_t mask_words_ = 0;
};

inline bool mask_allows(std::span<const uint32_t> mask, int id) {
  return mask[static_cast<size_t>(id) / 32] >> (static_cast<unsigned>(id) % 32) & 1;
}

}  // namespace hocket
