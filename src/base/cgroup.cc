#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace hocket {
namespace {

namespace fs = std::filesystem;

// v1 writes "no limit" as the largest page-aligned int64; no real limit reaches a quarter of that.
constexpr int64_t kUnlimited = int64_t{1} << 61;

template <class T>
void lower(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

std::optional<int64_t> to_number(std::string_view word) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return to_number(word);
}

// Returns the value after `key` in a file of `key value` lines; 0 if there is none.
int64_t read_field(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string name;
  for (int64_t number = 0; in >> name >> number;)
    if (name == key) return number;
  return 0;
}

struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;
};
constexpr MemoryFiles kMemoryV2{"memory.max", "memory.current", "inactive_file"};
constexpr MemoryFiles kMemoryV1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};

void apply_memory(const fs::path& group, const MemoryFiles& files, CgroupLimits& limits) {
  const std::optional<int64_t> limit = read_number(group / files.limit);
  if (!limit || *limit >= kUnlimited) return;
  lower(limits.memory_bytes, *limit);
  if (const std::optional<int64_t> used = read_number(group / files.used)) {
    const int64_t reclaimable = read_field(group / "memory.stat", files.reclaimable);
    const int64_t held = std::max<int64_t>(0, *used - reclaimable);
    lower(limits.memory_headroom_bytes, std::max<int64_t>(0, *limit - held));
  }
}

void apply_cpu_v2(const fs::path& group, CgroupLimits& limits) {
  std::ifstream in(group / "cpu.max");
  std::string quota, period;
  if (!(in >> quota >> period)) return;
  const auto q = to_number(quota), p = to_number(period);
  if (q && p && *q > 0 && *p > 0) lower(limits.cpus, double(*q) / double(*p));
}

void apply_cpu_v1(const fs::path& group, CgroupLimits& limits) {
  const auto q = read_number(group / "cpu.cfs_quota_us");
  const auto p = read_number(group / "cpu.cfs_period_us");
  if (q && p && *q > 0 && *p > 0) lower(limits.cpus, double(*q) / double(*p));
}

// Calls `apply` for every group from this process's group up to `top`, since all of them limit it.
// A container without a cgroup namespace names a path outside its mount; then `top` itself is its
// group.
template <class Apply>
void climb(const fs::path& top, const std::string& path, Apply&& apply) {
  std::error_code ignored;
  fs::path relative = fs::path(path).relative_path();
  while (!relative.empty() && fs::is_directory(top / relative, ignored)) {
    apply(top / relative);
    relative = relative.parent_path();
  }
  apply(top);
}

bool lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == wanted) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& membership, const fs::path& root) {
  CgroupLimits limits;
  std::ifstream in(membership);
  for (std::string line; std::getline(in, line);) {  // format: id:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      climb(root, path, [&](const fs::path& group) {
        apply_memory(group, kMemoryV2, limits);
        apply_cpu_v2(group, limits);
      });
    if (lists(controllers, "memory"))
      climb(root / "memory", path,
            [&](const fs::path& group) { apply_memory(group, kMemoryV1, limits); });
    if (lists(controllers, "cpu"))
      climb(root / "cpu", path, [&](const fs::path& group) { apply_cpu_v1(group, limits); });
  }
  return limits;
}

}  // namespace hocket
