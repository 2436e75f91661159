#include "engine/pages/page_source.h"

namespace hocket {
namespace {

class FileReading final : public PageReading {
 public:
  explicit FileReading(PageFiles& files) : files_(files) {}
  Result<size_t> last_held(std::span<const PageKey> keys) override {
    while (!keys.empty() && !files_.exists(keys.back())) keys = keys.first(keys.size() - 1);
    return keys.size();
  }
  Result<void> expect(std::span<const PageKey> keys, PageKind kind) override {
    static_cast<void>(keys), static_cast<void>(kind);
    return {};
  }
  Result<bool> get(const PageKey& key, std::span<std::byte> page) override {
    return files_.read(key, page);
  }

 private:
  PageFiles& files_;
};

}  // namespace

Result<std::unique_ptr<PageReading>> FileSource::open(const PagesWanted& wanted) {
  static_cast<void>(wanted);
  return std::make_unique<FileReading>(files_);
}

}  // namespace hocket
