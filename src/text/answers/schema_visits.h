// Counts the schemas that are looked at for the tools of one request. References may lead to one
// schema many times over, so this work is bounded by a number of its own, not by the bytes of the
// request; all tools share it, so that many of them cost no more than one.
// Owner: whoever reads a list of tools.   Thread: one at a time.
#pragma once

#include <cstddef>

namespace hocket {

class SchemaVisits {
 public:
  static constexpr size_t kMax = 65'536;

  // Counts a visit, and one more for each 64 bytes of a text that it looks at. False: the visits
  // are used up.
  bool take(size_t num_bytes = 0) {
    num_ += 1 + num_bytes / kBytesPerVisit;
    return !used_up();
  }
  // The same for a list: one more visit for each 4 entries.
  bool take_list(size_t num_entries) { return take(num_entries * kBytesPerEntry); }
  bool used_up() const { return num_ > kMax; }

 private:
  static constexpr size_t kBytesPerVisit = 64;
  static constexpr size_t kBytesPerEntry = 16;

  size_t num_ = 0;
};

}  // namespace hocket
