#include "base/host_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

namespace hocket {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

template <class T>
std::optional<T> read_number(const fs::path& file) {
  std::istringstream in(read_text(file));
  T number{};
  return in >> number ? std::optional(number) : std::nullopt;
}

// Returns the word in brackets: "madvise" of "always [madvise] never".
std::string chosen_word(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == text.npos || close == text.npos || close < open) return "";
  return text.substr(open + 1, close - open - 1);
}

// Reads lines such as `Name: 12 kB` as bytes by name; text before the name is ignored.
std::map<std::string, int64_t> read_kilobytes(const fs::path& file) {
  std::map<std::string, int64_t> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const size_t blank = line.rfind(' ', colon);
    const std::string name = line.substr(blank == line.npos ? 0 : blank + 1,
                                         colon - (blank == line.npos ? 0 : blank + 1));
    std::istringstream rest(line.substr(colon + 1));
    int64_t number = 0;
    if (rest >> number) out[name] = number * 1024;
  }
  return out;
}

// Returns the folders `PREFIX<number>` under `parent`, by number.
std::map<int, fs::path> numbered(const fs::path& parent, std::string_view prefix) {
  std::map<int, fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(parent, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    int id = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, code] = std::from_chars(name.data() + prefix.size(), end, id);
    if (code == std::errc{} && stop == end) out.emplace(id, entry.path());
  }
  return out;
}

std::vector<NumaNode> read_nodes(const fs::path& parent) {
  std::vector<NumaNode> nodes;
  for (const auto& [id, folder] : numbered(parent, "node")) {
    const auto memory = read_kilobytes(folder / "meminfo");
    const auto of = [&](const char* name) {
      const auto found = memory.find(name);
      return found == memory.end() ? int64_t{0} : found->second;
    };
    nodes.push_back({id, read_text(folder / "cpulist"), of("MemTotal"), of("MemFree")});
  }
  return nodes;
}

std::vector<std::string> read_governors(const fs::path& parent) {
  std::set<std::string> governors;
  for (const auto& [id, folder] : numbered(parent, "policy"))
    if (std::string name = read_text(folder / "scaling_governor"); !name.empty())
      governors.insert(std::move(name));
  return {governors.begin(), governors.end()};
}

std::optional<int64_t> limit_of(rlim_t value) {
  if (value == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

HostFacts read_host_facts(const fs::path& root) {
  HostFacts facts;
  const fs::path system = root / "sys/devices/system", kernel = root / "proc/sys";
  facts.clock_source = read_text(system / "clocksource/clocksource0/current_clocksource");
  facts.governors = read_governors(system / "cpu/cpufreq");
  facts.huge_pages = chosen_word(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  facts.nodes = read_nodes(system / "node");
  facts.numa_balancing = read_number<int64_t>(kernel / "kernel/numa_balancing");
  facts.overcommit_memory = read_number<int64_t>(kernel / "vm/overcommit_memory");
  facts.listen_backlog = read_number<int64_t>(kernel / "net/core/somaxconn");
  facts.load = read_number<double>(root / "proc/loadavg");
  const auto memory = read_kilobytes(root / "proc/meminfo");
  if (const auto total = memory.find("SwapTotal"); total != memory.end())
    facts.swap_bytes = total->second;
  if (const auto free = memory.find("SwapFree"); free != memory.end())
    facts.swap_free_bytes = free->second;
  struct statvfs shared{};
  if (statvfs((root / "dev/shm").c_str(), &shared) == 0)
    facts.shared_memory_bytes = static_cast<int64_t>(shared.f_blocks * shared.f_frsize);
  facts.cgroup = read_cgroup_limits(root / "proc/self/cgroup", root / "sys/fs/cgroup");

  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = limit_of(limit.rlim_cur);
    facts.max_open_files = limit_of(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_memory_bytes = limit_of(limit.rlim_cur);
  return facts;
}

}  // namespace hocket
