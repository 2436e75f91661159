#include "engine/pages/page_source.h"

namespace hocket {
namespace {

class FileReading final : public PageReading {
 public:
  explicit FileReading(PageFiles& files) : files_(files) {}
  Result<std::vector<bool>> exist(std::span<const PageKey> keys) override {
    std::vector<bool> there;
    for (const PageKey& key : keys) there.push_back(files_.exists(key));
    return there;
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
