// Writes counters into the JSON of an answer, each under the key of its row.   Thread: any.
#pragma once

#include <array>
#include <variant>

#include "core/named_counter.h"
#include "server/http/json_body.h"

namespace hocket {

// Adds those that have a key, by their old keys too.
template <class Counts, size_t num_rows>
void add_counters(const std::array<NamedCounter<Counts>, num_rows>& table, const Counts& counts,
                  Json& object) {
  for (const NamedCounter<Counts>& row : table)
    std::visit(
        [&](auto member) {
          for (const char* key : {row.key, row.old_key})
            if (key != nullptr) object[key] = counts.*member;
        },
        row.value);
}

}  // namespace hocket
