// Tests the events that an engine sends to routers about its prefix cache: for requests, a full
// pool and a flush.
#include <gtest/gtest.h>

#include <set>

#include "engine/tests/testing.h"

namespace hocket {
namespace {

using namespace testing;

RequestInput request(int first_token) {
  RequestInput input;
  for (int i = 0; i < 70; ++i) input.prompt.push_back(TokenId{first_token + i});
  input.sampling.max_new_tokens = 3;
  input.sampling.ignore_eos = true;
  return input;
}

std::set<PageHash> pages_named(const RequestInput& input, int page_tokens, int num_pages) {
  std::set<PageHash> names;
  const PageHasher hash;
  PageHash name = root_hash(input.cache_namespace);
  for (int page = 0; page < num_pages; ++page)
    names.insert(name =
                     hash(name, std::span(input.prompt).subspan(page * page_tokens, page_tokens)));
  return names;
}

// The state that a router keeps from the events.
struct Router {
  std::set<PageHash> blocks;
  int num_cleared = 0, num_removed = 0;
  void read(KvEventChannel& channel) {
    while (const auto event = channel.pop()) {
      if (event->kind == KvEvent::Kind::stored) {
        blocks.insert(event->hash);
      } else if (event->kind == KvEvent::Kind::removed) {
        num_removed += static_cast<int>(blocks.erase(event->hash));
      } else {
        blocks.clear();
        ++num_cleared;
      }
    }
  }
};

TEST(EngineKvEvents, AreNotThereUnlessAskedFor) {
  EXPECT_EQ(make_engine(settings_for("models/hocket-tiny-qwen3-moe"))->parts().kv_events, nullptr);
}

TEST(EngineKvEvents, SayWhatIsCached) {
  ServerSettings settings = settings_for("models/hocket-tiny-qwen3-moe");
  settings.scheduler.kv_events = true;
  settings.memory.max_total_tokens = settings.model.context_length = 1024;
  const auto engine = make_engine(settings);
  const int page_tokens = engine->info().page_tokens;
  ASSERT_EQ(page_tokens, 32);
  KvEventChannel& channel = *engine->parts().kv_events;
  const RequestInput first = request(5);
  run_all(*engine, {first});
  Router router;
  router.read(channel);
  EXPECT_EQ(router.num_cleared, 0) << "nobody listened";
  channel.listen();
  Outbox outbox(16);
  EXPECT_FALSE(engine->step(outbox)) << "idle, and tells all there is";
  router.read(channel);
  EXPECT_EQ(router.num_cleared, 1);
  EXPECT_EQ(router.blocks, pages_named(first, page_tokens, 2));

  std::vector<RequestInput> many;  // more than the pool holds
  for (int i = 0; i < 20; ++i) many.push_back(request(100 + 80 * i));
  run_all(*engine, many);
  router.read(channel);
  EXPECT_EQ(router.num_cleared, 1);
  EXPECT_GT(router.num_removed, 0);
  EXPECT_EQ(static_cast<int>(router.blocks.size()), engine->stats().scheduler.num_cached_pages);

  EXPECT_TRUE(engine->flush_cache());
  router.read(channel);
  EXPECT_TRUE(router.blocks.empty());
}

}  // namespace
}  // namespace hocket
