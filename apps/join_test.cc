#include "apps/join.h"

#include <gmock/gmock.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "base/source_dir_testing.h"
#include "client/fake_server_testing.h"
#include "engine/lockstep/identity.h"

namespace hocket {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Pair;

// Returns the words of a help, among which are the values that a flag can have.
std::vector<std::string> words_of_help(const std::string& help) {
  std::vector<std::string> words(1);
  for (const char c : help)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  return words;
}

// Calls try_it() after each change of the flag's value that a user could make.
void for_each_other_value(const Flag& flag, const auto& try_it) {
  std::visit(
      [&](auto* target) {
        using T = std::remove_cvref_t<decltype(*target)>;
        if constexpr (std::is_same_v<T, bool>) {
          *target = !*target;
          try_it();
        } else if constexpr (std::is_same_v<T, std::string>) {
          for (std::string& word : words_of_help(flag.help)) {
            *target = std::move(word);
            try_it();
          }
        } else if constexpr (!std::is_same_v<T, std::vector<std::string>>) {
          for (const int value : {1, 2, 3}) {
            *target = static_cast<T>(value);
            try_it();
          }
        }
      },
      flag.target);
}

ServerSettings plain_settings() {
  ServerSettings settings;
  settings.model.model_path = source_dir() / "models/hocket-tiny-qwen3-moe";
  return settings;
}

// Settings in which more flags have an effect.
ServerSettings rich_settings() {
  ServerSettings settings = plain_settings();
  settings.model.load_format = "dummy";
  settings.speculation.algorithm = "NEXTN";
  settings.parallel.enable_eplb = true;
  settings.parallel.enable_prefill_delayer = true;
  return settings;
}

std::string identity_of(const ServerSettings& settings) {
  const auto identity = make_identity(settings, {.num_ranks = 4});
  if (!identity) return "";
  return identity->arithmetic + "\n" + identity->plans + "\n" + identity->model_hash;
}

// Returns the flags whose values the ranks compare when they meet.
std::set<std::string> compared_flags(const ServerSettings& base) {
  const std::string before = identity_of(base);
  EXPECT_NE(before, "");
  ServerSettings settings = base;
  std::set<std::string> compared;
  for (const FlagGroup& group : settings_flags(settings))
    for (const Flag& flag : group.flags) {
      for_each_other_value(flag, [&] {
        if (compared.contains(flag.name)) return;
        const std::string now = identity_of(settings);
        if (!now.empty() && now != before) compared.insert(flag.name);
      });
      settings = base;
    }
  return compared;
}

std::set<std::string> shared_flags() {
  ServerSettings settings;
  std::set<std::string> shared;
  for (const FlagGroup& group : settings_flags(settings))
    for (const Flag& flag : group.flags)
      if (flag.shared_by_ranks) shared.insert(flag.name);
  return shared;
}

TEST(JoinTest, ARankThatJoinsTakesEachFlagThatRanksCompare) {
  std::set<std::string> compared = compared_flags(plain_settings());
  compared.merge(compared_flags(rich_settings()));
  EXPECT_THAT(compared, IsSupersetOf({"dtype", "context-length", "overlap-schedule",
                                      "eplb-rebalance-num-iterations", "dummy-seed"}));
  EXPECT_THAT(shared_flags(), IsSupersetOf(compared));
}

TEST(JoinTest, OnlySharedFlagsThatWereChangedAreGiven) {
  ServerSettings settings;
  settings.model.dtype = "float32";
  settings.parallel.enable_eplb = true;
  settings.http.port = 1234;
  Launch launch{.num_ranks = 4};
  launch.init_addr = {.host = "h0", .port = 5000};
  EXPECT_THAT(
      flags_to_join(settings, launch),
      testing::UnorderedElementsAre(Pair("dtype", "float32"), Pair("enable-eplb", "true"),
                                    Pair("nnodes", "4"), Pair("dist-init-addr", "h0:5000")));
}

Error refusal_of(FakeServer::Answer answer) {
  const FakeServer server(std::move(answer));
  const auto got = arguments_to_join(fmt::format("127.0.0.1:{}", server.port()), {}, {});
  return got ? Error() : got.error();
}

TEST(JoinTest, AFalseServiceCostsNeitherMemoryNorTheStack) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = fmt::format("1000\r\n{}\r\n", std::string(4096, ' '));
  EXPECT_THAT(refusal_of({.head = "HTTP/1.1 200 OK\r\n" + chunked, .piece = chunk}).message,
              HasSubstr("is longer than 1048576 bytes"));
  const std::string large = "Content-Length: 99000000000000\r\n\r\n";
  EXPECT_THAT(refusal_of({.head = "HTTP/1.1 200 OK\r\n" + large, .piece = " "}).message,
              HasSubstr("is longer than 1048576 bytes"));
  const size_t depth = 500'000;
  const std::string deep = R"({"error":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  const std::string head =
      fmt::format("HTTP/1.1 503 Unavailable\r\nContent-Length: {}\r\n\r\n", deep.size());
  EXPECT_THAT(refusal_of({.head = head, .piece = deep, .num_pieces = 1}).message,
              HasSubstr("takes no rank: it answers 503"));
}

}  // namespace
}  // namespace hocket
