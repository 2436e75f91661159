// The form of pages: all that their bytes depend on, beside their tokens. Two services whose forms
// differ only in the size of a page can exchange pages: the one that asks names those of the other
// by their keys, and puts the tokens into pages of its own (regrouped_pages.h).
//
// Records of the state behind a page (engine/tier/border_states.h) have a form, too: that of delta
// nets is the same for every size, and a window is kept in whole pages.
//
// Pure values.   Thread: any.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "compute/kv/page_header.h"
#include "compute/kv/page_layout.h"

namespace hocket {

class PageForms {
 public:
  struct Parts {
    std::string bits;         // names the model and the arithmetic
    PageLayout pages;         // those of this service
    PageLayout windows;       // window pages; without layers: there are none
    int window_tokens = 0;    // that a window layer sees, a token's own included
    int64_t state_bytes = 0;  // size of the delta nets' state behind a page; 0: there is none
  };
  // Precondition: parts.pages has layers.
  explicit PageForms(Parts parts);

  // The size of this service's pages, in tokens.
  int page_tokens() const { return parts_.pages.page_tokens(); }
  // Returns the form if pages had that size, a power of two up to PageLayout::kMaxTokens.
  const PageKey& form(int page_tokens) const;
  const PageKey& form() const { return form(page_tokens()); }
  // Returns the size of the pages that have this form; nullopt: those of another model or dtype.
  std::optional<int> size_of(const PageKey& form) const;
  static bool is_size(int64_t page_tokens);

  PageLayout pages(int page_tokens) const { return parts_.pages.with_tokens(page_tokens); }
  // Returns whether records are of windows; those of delta nets have the same bytes for all sizes.
  bool keeps_windows() const;
  PageLayout windows(int page_tokens) const { return parts_.windows.with_tokens(page_tokens); }
  int window_tokens() const { return parts_.window_tokens; }
  // Returns the size of a record; 0: the model has none.
  int64_t record_bytes(int page_tokens) const;

 private:
  static constexpr int kNumSizes = 8;
  static_assert(1 << (kNumSizes - 1) == PageLayout::kMaxTokens);
  std::string describe(int page_tokens) const;

  const Parts parts_;
  std::array<PageKey, kNumSizes> forms_{};  // those of 1, 2, 4 .. tokens
};

// Returns the first token of the window pages that a record behind `border` has.
int first_in_record(int border, int window_tokens, int page_tokens);

// A record in pages of one size may lack the first tokens of a record in larger pages. Returns the
// borders, the last one first, of the records in pages of `from_tokens` that together have every
// token of the one behind `border` in pages of `to_tokens`.
// Precondition: `border` is a multiple of both sizes, and the window has two tokens or more.
std::vector<int> record_borders(int border, int window_tokens, int from_tokens, int to_tokens);

}  // namespace hocket
