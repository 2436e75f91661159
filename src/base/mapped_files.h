// Remembers the names of mapped files. If one becomes shorter while it is mapped, reading its
// missing pages raises SIGBUS, and the process ends with an error that names the file.   Thread:
// any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace hocket {

// While it lives, a SIGBUS in [begin, begin + bytes) is reported as an error of `path`.
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

// Handles SIGBUS for the rest of the process. In a MappedFile it ends the process with status 3 and
// the error above; any other SIGBUS ends it by the signal, after the black box was written. Only
// programs call this, since a library leaves signals alone.
void watch_mapped_files();

}  // namespace hocket
