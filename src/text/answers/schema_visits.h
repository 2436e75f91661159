// Counts how many schemas are read for the tools of one request. References may lead to one schema
// many times over, so this work has a limit of its own besides the bytes of the request; all tools
// share it, so that many tools cost no more than one. Owner: the reader of a list of tools.
// Thread: one at a time.
#pragma once

#include <cstddef>

namespace hocket {

class SchemaVisits {
 public:
  static constexpr size_t kMax = 65'536;

  // Counts a visit, and one more for each 64 bytes of text that is read. Returns false if the
  // visits are used up.
  bool take(size_t num_bytes = 0) {
    num_ += 1 + num_bytes / kBytesPerVisit;
    return !used_up();
  }
  // Counts a visit and one more for each 4 entries of a list. Returns false likewise.
  bool take_list(size_t num_entries) { return take(num_entries * kBytesPerEntry); }
  bool used_up() const { return num_ > kMax; }

 private:
  static constexpr size_t kBytesPerVisit = 64;
  static constexpr size_t kBytesPerEntry = 16;

  size_t num_ = 0;
};

}  // namespace hocket
