#include "engine/pages/page_forms.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "core/visible_keys.h"
#include "engine/plan/tier_buffers.h"

namespace hocket {
namespace {

// Raise this if the bytes of a page mean other numbers than before.
constexpr int kPageLevel = 2;

size_t index_of(int page_tokens) {
  HOCKET_CHECK(PageForms::is_size(page_tokens));
  return static_cast<size_t>(std::countr_zero(static_cast<unsigned>(page_tokens)));
}

void describe_layers(const PageLayout& pages, std::string& text) {
  for (const KvShape& shape : pages.layers)
    text += fmt::format(" {}:{}:{}:{}:{}:{}", static_cast<int>(shape.kind), dtype_name(shape.dtype),
                        shape.num_heads, shape.key_dim, shape.value_dim, shape.page_tokens);
}

PageKey hash_text(const std::string& text) {
  PageKey key{};
  HOCKET_CHECK(EVP_Digest(text.data(), text.size(), key.data(), nullptr, EVP_sha256(), nullptr) ==
               1);
  return key;
}

}  // namespace

PageForms::PageForms(Parts parts) : parts_(std::move(parts)) {
  for (size_t i = 0; i < forms_.size(); ++i) forms_[i] = hash_text(describe(1 << i));
}

bool PageForms::is_size(int64_t page_tokens) {
  return page_tokens > 0 && page_tokens <= PageLayout::kMaxTokens &&
         std::has_single_bit(static_cast<uint64_t>(page_tokens));
}

std::string PageForms::describe(int page_tokens) const {
  std::string text = parts_.bits;
  text += fmt::format(" | pages {} | states of {} bytes |", kPageLevel, record_bytes(page_tokens));
  describe_layers(pages(page_tokens), text);
  if (parts_.windows.layers.empty()) return text;
  text += " | windows";
  describe_layers(windows(page_tokens), text);
  return text;
}

const PageKey& PageForms::form(int page_tokens) const {
  return forms_[index_of(page_tokens)];
}

std::optional<int> PageForms::size_of(const PageKey& form) const {
  const auto found = std::ranges::find(forms_, form);
  if (found == forms_.end()) return std::nullopt;
  return 1 << (found - forms_.begin());
}

bool PageForms::keeps_windows() const {
  return parts_.state_bytes == 0 && !parts_.windows.layers.empty() && parts_.window_tokens > 1;
}

int64_t PageForms::record_bytes(int page_tokens) const {
  if (!keeps_windows()) return parts_.state_bytes;
  return window_record_pages(parts_.window_tokens, page_tokens) * windows(page_tokens).page_bytes();
}

int first_in_record(int border, int window_tokens, int page_tokens) {
  return VisibleKeys{.window = window_tokens}.first_key(border) / page_tokens * page_tokens;
}

std::vector<int> record_borders(int border, int window_tokens, int from_tokens, int to_tokens) {
  HOCKET_CHECK((window_tokens > 1 && border % from_tokens == 0 && border % to_tokens == 0));
  const int begin = first_in_record(border, window_tokens, to_tokens);
  std::vector<int> borders;
  for (int end = border; end > begin; end = first_in_record(end, window_tokens, from_tokens))
    borders.push_back(end);
  return borders;
}

}  // namespace hocket
