// The fixture of tests of pages that outlive their eviction: a folder, questions, and their answers
// as computed without any page from elsewhere. For tests.
#pragma once

#include <utility>

#include "base/folder_testing.h"
#include "engine/tests/service.h"

namespace hocket::testing {

class StoredPagesTest : public FolderTest {
 protected:
  // A prompt of `num_tokens`, and an answer of ten with its log-probabilities.
  static RequestInput question(int seed, int num_tokens = 700) {
    RequestInput input = greedy_input(random_tokens(seed, num_tokens), 10);
    input.sampling.ignore_eos = true;
    input.sampling.num_top_logprobs = 2;
    return input;
  }
  // Pages are named by their keys in hex; other files lie beside them.
  static bool is_page(const std::filesystem::directory_entry& entry) {
    return entry.is_regular_file() && entry.path().filename().string().size() == 64;
  }
  // Prompts are computed in chunks; null: the bundled model.
  static ServerSettings plain(const Form* form = nullptr, int num_ranks = 1) {
    ServerSettings settings = settings_of(form != nullptr ? *form : kBundled, num_ranks);
    settings.memory.max_total_tokens = settings.model.context_length =
        form != nullptr ? 1024 : 2048;
    return settings;
  }
  // Settings of a folder that gets the pages which are used twice; a request waits for its pages.
  ServerSettings selective(const Form& form) const {
    ServerSettings settings = settings_of(form, 1);
    settings.memory.kv_cache_dir = folder_.string();
    settings.memory.hicache_write_policy = "write_through_selective";
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    settings.memory.max_total_tokens = settings.model.context_length = 1024;
    return settings;
  }
  static Answer ask(Service& service, RequestInput input) {
    const auto id = service.submit(std::move(input));
    EXPECT_TRUE(id.has_value());
    EXPECT_TRUE(service.read_all());
    return service.answer(*id);
  }
  static Answer computed(const ServerSettings& settings, RequestInput input) {
    Service service(settings);
    return ask(service, std::move(input));
  }
  static void expect_same(const Answer& got, const Answer& want) {
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.logprobs, want.logprobs);  // by bits
  }
};

}  // namespace hocket::testing
