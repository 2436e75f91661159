// Files that are mapped, by name: where one becomes shorter meanwhile, its missing pages fault with
// SIGBUS, and the process ends with a sentence that names it.   Thread: any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace hocket {

// Says, while it lives, that [begin, begin + bytes) is `path`.
class MappedFile {
 public:
  MappedFile();
  MappedFile(const void* begin, size_t bytes, std::string path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  struct Entry;

 private:
  std::unique_ptr<Entry> entry_;
};

// From now on SIGBUS in such a file ends the process with status 3 and the sentence; any other one
// as before, with what the black box has. A program's own choice: a library leaves signals alone.
void watch_mapped_files();

}  // namespace hocket
