// Fuzzes the files of pages (compute/kv/page_files.h), which a crash, a disk or another program may
// have left in any state. Whatever stands in the place of a page, it is taken only if all of it is
// the page that its name says; and what is no page of that name is deleted.
//
//   input: a byte that says what is made right, then the bytes of the file
//   its bits: 1 the key in the head is that of the name, 2 so is the size, 4 the sum fits to it all
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "compute/kv/page_files.h"
#include "compute/kv/page_folders.h"

using namespace hocket;

namespace {

namespace fs = std::filesystem;

constexpr size_t kFuzzedPage = 64;
constexpr size_t kMaxFile = 4096;

PageKey fuzzed_key() {
  PageKey key{};
  key.fill(0x3f);
  return key;
}

// In a folder of its own, since those beside it could be ones of other forms.
PageFiles& fuzzed_files() {
  static const std::unique_ptr<PageFiles> files = [] {
    auto opened = PageFiles::open(fs::temp_directory_path() /
                                  fmt::format("hocket-page-files-fuzz-{}", getpid()) / "pages");
    HOCKET_CHECK(opened.has_value());
    return *std::move(opened);
  }();
  return *files;
}

// Returns the head of a file that is long enough for one.
PageHeader head_of(std::span<const std::byte> file) {
  PageHeader head;
  std::memcpy(&head, file.data(), sizeof head);
  return head;
}

// Makes parts of the head right, so that the parts behind are looked at.
void mend(uint8_t parts, std::span<std::byte> file) {
  if (file.size() < sizeof(PageHeader)) return;
  const auto page = file.subspan(sizeof(PageHeader));
  PageHeader head = head_of(file);
  if ((parts & 1) != 0) head.key = fuzzed_key();
  if ((parts & 2) != 0) head.page_bytes = page.size();
  if ((parts & 4) != 0) head.sum = make_page_header(head.key, page).sum;
  std::memcpy(file.data(), &head, sizeof head);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > kMaxFile) return 0;
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<std::byte> file(input.begin() + 1, input.end());
  mend(data[0], file);
  PageFiles& files = fuzzed_files();
  const PageKey key = fuzzed_key();
  const fs::path path = path_of_page(files.folder(), key);
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  HOCKET_CHECK(files.list().has_value());

  std::vector<std::byte> page(kFuzzedPage, std::byte{9});
  const Result<bool> found = files.read(key, page);
  HOCKET_CHECK(found.has_value());
  const bool has_head = file.size() >= sizeof(PageHeader);
  const auto behind = std::span(file).subspan(has_head ? sizeof(PageHeader) : 0);
  const bool has_size = has_head && behind.size() == page.size();
  HOCKET_CHECK(*found == (has_size && fits(head_of(file), key, behind)));
  if (*found) HOCKET_CHECK(std::ranges::equal(page, behind));
  // A whole page of another size may be one for another reader.
  const bool is_kept = has_head && !has_size && head_of(file).names(key, behind.size());
  HOCKET_CHECK(files.exists(key) == (*found || is_kept));
  HOCKET_CHECK(files.has(key) == *found);

  const std::vector<std::byte> whole(kFuzzedPage, std::byte{7});
  HOCKET_CHECK(files.write(key, whole).has_value());
  HOCKET_CHECK(files.read(key, page).value_or(false));
  HOCKET_CHECK(page == whole);
  HOCKET_CHECK(files.figures().files == 1);
  fs::remove(path);
  return 0;
}
