// Parses JSON that a client, a peer or a model wrote.   Thread: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_text.h"

namespace hocket {

// Gives a discarded tree if the text is no JSON or is nested deeper than kJsonDepthMax: copying,
// comparing and printing a tree recurse; parsing and destroying it do not.
template <class Tree = nlohmann::ordered_json>
Tree parse_bounded_json(std::string_view text) {
  if (json_shape(text).too_deep()) return Tree(Tree::value_t::discarded);
  return Tree::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace hocket
