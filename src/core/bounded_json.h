// Parses JSON that a client, a peer or a model wrote.   Thread: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "base/json_text.h"
#include "core/ordered_tree.h"

namespace hocket {

// Returns a discarded tree if the text is not JSON, is nested deeper than kMaxJsonDepth or has a
// number or word of more than kMaxJsonWord bytes. Depth is limited because copying, comparing and
// printing a tree recurse; parsing and destroying it do not. The last of equal keys in one object
// counts.
template <class Tree = nlohmann::ordered_json>
Tree parse_bounded_json(std::string_view text) {
  const JsonShape shape = json_shape(text);
  if (shape.too_deep() || shape.has_endless_word()) return Tree(Tree::value_t::discarded);
  if constexpr (std::is_same_v<Tree, nlohmann::ordered_json>)
    return parse_ordered(text);
  else
    return Tree::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace hocket
