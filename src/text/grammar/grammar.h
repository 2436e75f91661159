// Grammars for answers (llguidance, in rust/). A grammar is compiled once and copied for each
// answer; the copy, a matcher, says before each token which tokens are allowed.
//
//   GrammarVocabulary --compile--> Grammar --begin--> GrammarMatcher: mask, accept, mask, ...
//
// An answer's masks depend only on its grammar and its own tokens: copies share nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "core/grammar_spec.h"
#include "text/tokens/tokenizer.h"

struct HkGrammar;
struct HkMatcher;

namespace hocket {

// Stack of a compilation: four times the need of the deepest grammar that
// rust/src/grammar_bounds.rs accepts. Only pages that are used take memory.
inline constexpr size_t kCompileStackBytes = 256 << 20;

// The state of an answer after a token.
struct GrammarState {
  bool may_end = false;  // the text may end here
  bool ended = false;    // only an end token may follow
};

// The state of one answer in its grammar.   Thread: one at a time.
class GrammarMatcher {
 public:
  // Writes one bit for each token: bit i % 32 of word i / 32 is set if token i is allowed. End
  // tokens are allowed if the text may end. At least one bit is set. Errors: invalid_request if the
  // grammar is too ambiguous to continue.
  Result<void> mask(std::span<uint32_t> words);
  // Takes the next token. Errors: invalid_request if the mask does not allow it, or as for mask().
  Result<GrammarState> accept(TokenId token);
  // Returns the tokens that must follow; empty if there is a choice.
  std::vector<TokenId> forced();
  // Returns how many of the tokens are allowed one behind the other, and takes none of them.
  // Errors: as for mask().
  Result<size_t> num_allowed(std::span<const TokenId> tokens);
  // Returns the bytes of memory that it holds, which grow with its calls. Beyond 64 MiB all other
  // calls fail.
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
  // Returns the bytes of memory that it holds; each matcher of begin() holds about as much.
  size_t num_bytes() const { return fresh_.num_bytes(); }

 private:
  friend class GrammarVocabulary;
  explicit Grammar(HkMatcher* fresh) : fresh_(fresh) {}
  mutable Mutex mutex_;  // one copy at a time
  const GrammarMatcher fresh_;
};

// The vocabulary for grammars: a trie of all tokens' bytes. Making it takes some 5 us per token.
// Thread: any.
class GrammarVocabulary {
 public:
  // create() reads both; the vocabulary does not need the tokenizer afterwards.
  struct Source {
    const HkTokenizer* tokenizer = nullptr;
    std::filesystem::path folder;  // contains tokenizer.json
  };
  // num_logits: width of the masks in bits. end_ids: the model's end tokens, at least one. Errors:
  // bad_tokenizer.
  static Result<GrammarVocabulary> create(const Source& source, int num_logits,
                                          std::span<const TokenId> end_ids);

  // Compiles on a thread of its own, with a stack of kCompileStackBytes. Time and memory are not
  // limited here; engine/grammar/grammar_trials.h does that. Errors: invalid_request, which names
  // spec.field, with the first line of llguidance's message; out_of_memory if the thread cannot be
  // started.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) const;
  // Returns the length of a mask in words of 32 bits.
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
