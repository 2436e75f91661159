#include "cluster/member.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace hocket {
namespace {

bool is_control(unsigned char c) {
  return c < 32 || c == 127;
}

// Returns the parts of `terms` that `others` has not; "; " is between parts.
std::string parts_without(std::string_view terms, std::string_view others) {
  constexpr std::string_view kBetween = "; ";
  const auto enclosed = [&](std::string_view text) {
    return fmt::format("{}{}{}", kBetween, text, kBetween);
  };
  const std::string all = enclosed(others);
  std::string parts;
  while (!terms.empty()) {
    const std::string_view part = terms.substr(0, terms.find(kBetween));
    terms.remove_prefix(std::min(part.size() + kBetween.size(), terms.size()));
    if (all.find(enclosed(part)) == std::string::npos)
      parts += fmt::format("{}{}", parts.empty() ? "" : kBetween, part);
  }
  return parts;
}

}  // namespace

std::string name_of(const Identity& identity) {
  if (identity.host.empty()) return fmt::format("rank {}", identity.rank);
  return fmt::format("rank {} ({})", identity.rank, identity.host);
}

std::string cut_why(std::string_view why) {
  return std::string(why.substr(0, kMaxWhyBytes));
}

bool is_printable(std::string_view text) {
  return std::ranges::none_of(text, is_control);
}

std::string in_one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(line, is_control, ' ');
  return line;
}

std::string make_boot_id() {
  std::array<unsigned char, 8> bytes;
  HOCKET_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Result<void> check(const Heartbeat& heartbeat) {
  if (heartbeat.terms.size() <= kMaxNameBytes && is_printable(heartbeat.terms)) return {};
  return fail(ErrorCode::bad_value, "the terms are longer than {} bytes, or not printable",
              kMaxNameBytes);
}

Result<void> check(const Identity& identity) {
  if (identity.num_ranks < 1 || identity.num_ranks > kMaxRanks)
    return fail(ErrorCode::bad_value, "a cluster has 1 to {} ranks, not {}", kMaxRanks,
                identity.num_ranks);
  if (identity.rank < 0 || identity.rank >= identity.num_ranks)
    return fail(ErrorCode::bad_value, "there is no rank {} among {} ranks", identity.rank,
                identity.num_ranks);
  if (identity.ranks_per_node < 1 || identity.ranks_per_node > identity.num_ranks)
    return fail(ErrorCode::bad_value, "{} ranks per node: must be 1 to {}, the number of ranks",
                identity.ranks_per_node, identity.num_ranks);
  const std::pair<const char*, const std::string*> texts[] = {
      {"host", &identity.host},
      {"boot id", &identity.boot_id},
      {"version", &identity.version},
      {"model hash", &identity.model_hash},
      {"plan set", &identity.plans},
      {"arithmetic level", &identity.arithmetic},
      {"disaggregation mode", &identity.disaggregation},
      {"address", &identity.address},
  };
  for (const auto& [name, text] : texts) {
    if (text->size() > kMaxNameBytes)
      return fail(ErrorCode::bad_value, "the {} of rank {} is {} bytes long; at most {} are taken",
                  name, identity.rank, text->size(), kMaxNameBytes);
    if (!is_printable(*text))
      return fail(ErrorCode::bad_value, "the {} of rank {} has control characters", name,
                  identity.rank);
  }
  return {};
}

std::optional<Error> disagreement(const Identity& own, const Identity& other) {
  const auto differ = [&](std::string_view field, const auto& ours, const auto& theirs,
                          const char* fix) -> std::optional<Error> {
    if (ours == theirs) return std::nullopt;
    return error(ErrorCode::lost_rank, "the {} differs: {} has {}, {} has {}", field, name_of(own),
                 ours, name_of(other), theirs)
        .with_fix(fix);
  };
  if (auto e = differ("version of hocket", own.version, other.version,
                      "run the same binary on all ranks"))
    return e;
  if (auto e = differ("number of ranks", own.num_ranks, other.num_ranks,
                      "give all ranks the same --nnodes, --ep-size and --ranks-per-node"))
    return e;
  if (auto e = differ("number of ranks a node", own.ranks_per_node, other.ranks_per_node,
                      "give all ranks the same --ranks-per-node"))
    return e;
  if (auto e = differ("model hash", own.model_hash, other.model_hash,
                      "give all ranks the same model files"))
    return e;
  if (auto e = differ(
          "plan set", own.plans, other.plans,
          "give all ranks the same --context-length, --chunked-prefill-size, --max-prefill-tokens, "
          "--max-running-requests, --prefill-policy, --enable-prefill-delayer, "
          "--speculative-algorithm, "
          "--overlap-plan, --init-expert-location and --tolerate-ranks"))
    return e;
  if (auto e = differ("arithmetic level", own.arithmetic, other.arithmetic,
                      "give all ranks the same build, --dtype, --quantization, --kv-cache-dtype, "
                      "--combine-groups, --mla-form, --dispatch-dtype and --combine-dtype"))
    return e;
  // Ranks compute each step together, so prompts of one would delay the answers of all.
  return differ("disaggregation mode", own.disaggregation, other.disaggregation,
                "give all ranks of a service the same --disaggregation-mode; to compute prompts "
                "apart from answers, start two services, each with a --dist-init-addr of its own");
}

Error other_terms(const Identity& member, std::string_view theirs, const Identity& other,
                  std::string_view its) {
  return error(ErrorCode::lost_rank, "the ranks' messages would differ: {} has {}, {} has {}",
               name_of(member), parts_without(theirs, its), name_of(other),
               parts_without(its, theirs))
      .with_fix(
          "give all ranks the same numbers for --max-running-requests, --chunked-prefill-size, "
          "--max-prefill-tokens and --ep-num-redundant-experts; what is not given, or is auto, "
          "follows from each rank's memory");
}

bool are_enough(const RankSet& ranks, int64_t num_ranks, int tolerate_ranks, int coordinator) {
  return ranks.size() >= num_ranks - tolerate_ranks &&
         (ranks.has(coordinator) || ranks.size() > tolerate_ranks);
}

// A rank without a connection to the coordinator marks it as absent, and is in no epoch then.
bool ClusterView::serves() const {
  if (epoch == 0 || over || members.empty()) return false;
  const bool is_heard = members.at(static_cast<size_t>(coordinator)).state != MemberState::absent;
  return is_heard && (began ? are_enough(present()) : present().size() == std::ssize(members));
}

RankSet ClusterView::present() const {
  RankSet ranks;
  for (size_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].state == MemberState::member) ranks.add(static_cast<int>(rank));
  return ranks;
}

RankSet ClusterView::staying() const {
  RankSet ranks;
  for (size_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].state == MemberState::member && !members[rank].leaves)
      ranks.add(static_cast<int>(rank));
  return ranks;
}

std::string missing(const ClusterView& view) {
  if (view.whole()) return {};
  std::string names;
  for (const Member& member : view.members)
    if (member.state != MemberState::member)
      names += (names.empty() ? "" : ", ") + name_of(member.identity);
  if (names.empty())
    return fmt::format("epoch {} is over, and etcd has not taken the next one yet{}{}", view.epoch,
                       view.why.empty() ? "" : ": ", view.why);
  const bool one = std::ranges::count_if(view.members, [](const Member& m) {
                     return m.state != MemberState::member;
                   }) == 1;
  if (one && view.why.starts_with(names)) return view.why;
  std::string text = fmt::format("{} {} not there", names, one ? "is" : "are");
  if (!view.why.empty()) text += ": " + view.why;
  return text;
}

std::string loading_line(const std::vector<RankStatus>& status) {
  constexpr size_t kMaxNamed = 8;
  std::vector<std::string> loading;
  for (size_t rank = 0; rank < status.size(); ++rank) {
    const RankStatus& one = status[rank];
    const Heartbeat& heartbeat = one.heartbeat;
    const bool there = one.state != MemberState::absent;
    if (there && heartbeat.to_load > 0 && heartbeat.loaded >= heartbeat.to_load) continue;
    const double share = heartbeat.to_load == 0 ? 0
                                                : static_cast<double>(heartbeat.loaded) /
                                                      static_cast<double>(heartbeat.to_load);
    const std::string name =
        name_of({.rank = static_cast<int>(rank), .host = there ? one.host : ""});
    loading.push_back(there ? fmt::format("{} {:.0f} %", name, std::floor(100 * share))
                            : name + " is not there");
  }
  std::string line =
      fmt::format("{} of {} ranks are loaded", status.size() - loading.size(), status.size());
  for (size_t i = 0; i < std::min(loading.size(), kMaxNamed); ++i)
    line += (i == 0 ? "; " : ", ") + loading[i];
  if (loading.size() > kMaxNamed) line += fmt::format(" and {} more", loading.size() - kMaxNamed);
  return line;
}

}  // namespace hocket
