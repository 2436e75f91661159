// A place to read a prompt's pages from, beside the pool: files, or another service (a peer).
//
//   open(what is wanted) -> PageReading: last_held(keys), expect(keys), get(key) ..
//
// A source never holds up more than the thread that reads, and each of its waits has a limit.
// There is no put: files are written by the tier alone, and a peer keeps what it computed itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "compute/kv/page_files.h"
#include "policy/cache/cache_namespace.h"

namespace hocket {

enum class PageKind : uint8_t { page = 0, state = 1 };

struct PagesWanted {
  CacheNamespace name_space;
  std::span<const TokenId> prompt;  // all of it: a peer may have to compute it
  int peer = -1;                    // place of the peer to try first; -1: they take turns
  // Returns true when nobody waits for the pages any more; waits end soon after.
  std::function<bool()> is_over;
};

// The reading of one prompt's pages.   Thread: one, that of the reader.
class PageReading {
 public:
  virtual ~PageReading() = default;
  // Returns how many keys there are up to the last one whose page is there now; 0: none is.
  // Errors: io.
  virtual Result<size_t> last_held(std::span<const PageKey> keys) = 0;
  // Says which pages get() will ask for next, in this order, so that they can travel together.
  // Errors: io.
  virtual Result<void> expect(std::span<const PageKey> keys, PageKind kind) = 0;
  // Fills `page`. Returns false if it is absent, damaged, or is_over(). Errors: io.
  virtual Result<bool> get(const PageKey& key, std::span<std::byte> page) = 0;
};

class PageSource {
 public:
  virtual ~PageSource() = default;
  // Returns true if pages are computed there when they are asked for: then they need not exist yet.
  virtual bool computes() const = 0;
  // Returns how many times open() may be tried for one prompt: each may choose another peer.
  virtual int num_tries() const = 0;
  // Returns null if all peers are left alone for now. Errors: io (none can be reached).
  virtual Result<std::unique_ptr<PageReading>> open(const PagesWanted& wanted) = 0;
};

// Reads from `files`, which outlive it.
class FileSource final : public PageSource {
 public:
  explicit FileSource(PageFiles& files) : files_(files) {}
  bool computes() const override { return false; }
  int num_tries() const override { return 1; }
  Result<std::unique_ptr<PageReading>> open(const PagesWanted& wanted) override;

 private:
  PageFiles& files_;
};

}  // namespace hocket
