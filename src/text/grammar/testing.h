// Gives tests a vocabulary, and a check if a grammar takes a text, token by token.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/source_dir_testing.h"
#include "text/grammar/grammar.h"

namespace hocket::testing {

class TestVocabulary {
 public:
  explicit TestVocabulary(const char* name = "qwen2")
      : folder_(source_dir() / "tests/golden/tokenizers" / name),
        tokenizer_(*Tokenizer::load(folder_)),
        ends_{*tokenizer_.eos_id()},
        vocabulary_(
            *GrammarVocabulary::create({tokenizer_.handle(), folder_}, num_logits(), ends_)) {}

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const GrammarVocabulary& vocabulary() const { return vocabulary_; }
  int num_logits() const { return tokenizer_.vocab_size() + 40; }

  // Returns true if every token of `text`, cut as the tokenizer cuts it, is allowed, and then the
  // end.
  bool takes(const Grammar& grammar, std::string_view text) const {
    GrammarMatcher matcher = grammar.begin();
    std::vector<TokenId> ids = *tokenizer_.encode(text, {.add_special_tokens = false});
    ids.push_back(ends_.front());
    std::vector<uint32_t> mask(vocabulary_.mask_words());
    for (const TokenId id : ids) {
      if (const auto done = matcher.mask(mask); !done) {
        ADD_FAILURE() << done.error().message;
        return false;
      }
      if (!mask_allows(mask, value(id))) return false;
      EXPECT_TRUE(matcher.accept(id).has_value());
    }
    return true;
  }
  // Returns false also if the grammar cannot be compiled.
  bool takes(GrammarKind kind, const std::string& grammar, std::string_view text) const {
    const auto made = vocabulary_.compile({.kind = kind, .text = grammar, .field = "test"});
    if (!made) {
      ADD_FAILURE() << made.error().message << "\n" << grammar;
      return false;
    }
    return takes(**made, text);
  }

 private:
  std::filesystem::path folder_;
  Tokenizer tokenizer_;
  std::vector<TokenId> ends_;
  GrammarVocabulary vocabulary_;
};

}  // namespace hocket::testing
