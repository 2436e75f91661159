// The file of a page (page_files.h), open for reading. Whatever stands in its place, opening does
// not wait for it and follows no link.   Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace hocket {

class OpenPageFile {
 public:
  explicit OpenPageFile(const std::filesystem::path& path);
  ~OpenPageFile();
  OpenPageFile(const OpenPageFile&) = delete;
  OpenPageFile& operator=(const OpenPageFile&) = delete;

  // Returns the error's number, or 0 if it is open.
  int problem() const { return problem_; }
  // Returns true if nothing that may be a page is there: no file, or a link.
  bool is_absent() const;
  // Returns the file's size; -1: it is no regular file. Precondition: it is open.
  int64_t size() const;
  // Fills `bytes` from an offset. Returns 0, or the error's number; -1: the file ends before.
  int read(std::span<std::byte> bytes, int64_t offset) const;
  // Notes a use, which outlives the process.
  void touch() const;

 private:
  const int fd_;
  const int problem_;
};

}  // namespace hocket
