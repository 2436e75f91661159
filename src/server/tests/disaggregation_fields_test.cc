// Tests the fields by which an outside router sends a request to two services.
#include "server/disaggregation_fields.h"

#include <gtest/gtest.h>

#include "server/apis/sglang/generate_api.h"
#include "server/apis/sglang/generate_request.h"
#include "server/ranks/role_sender.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

class DisaggregationFields : public ::testing::Test {
 protected:
  // Reads a body of /generate with these fields, as a service in that mode does.
  Result<PreparedRequest> read(const std::string& fields, Disaggregation mode) {
    const std::string body =
        R"({"text": ["a", "b"], "sampling_params": {"max_new_tokens": 8}, )" + fields + "}";
    HOCKET_TRY(const Json json, parse_json_object(body));
    const ServedModel model{&engine_.info(), &bundled_text().tokenizer,
                            &bundled_text().chat_template};
    HOCKET_TRY(GenerationRequest asked, parse_generate(json, model));
    HOCKET_TRY(PreparedRequest prepared, prepare_request(std::move(asked), model));
    const PrefillRole role({.mode = mode, .can_prefill = has_roles_, .can_decode = has_roles_});
    HOCKET_TRY_VOID(
        apply_disaggregation_fields(prepared, {.peers = peers_,
                                               .role = &role,
                                               .num_prefill_tokens = num_prefill_tokens_,
                                               .reached_at = reached_at_}));
    return prepared;
  }
  static std::string place(std::string_view host, int port) {
    return fmt::format(R"("bootstrap_host": "{}", "bootstrap_port": {})", host, port);
  }
  static bool is_of_prompt(const Result<PreparedRequest>& read) {
    return read && read->request.prefill_peer == -1 &&
           read->request.prompts.front().max_tokens == 1;
  }
  static int peer_of(const Result<PreparedRequest>& read) {
    return read && read->request.prompts.front().max_tokens == 8 ? read->request.prefill_peer : -2;
  }

  const FakeServerEngine engine_;
  PeerSettings peers_{.kv_cache_listen = "0.0.0.0:8998",
                      .disaggregation_prefill_url = "h1:8998,h2:9000"};
  int num_prefill_tokens_ = 1;
  bool has_roles_ = true;
  std::string reached_at_ = "h0:30000";
};

TEST_F(DisaggregationFields, TheServiceOfPromptsAnswersWithOneToken) {
  for (const int num_tokens : {1, 2}) {
    num_prefill_tokens_ = num_tokens;
    const auto got = read(place("h1", 8998), Disaggregation::prefill);
    ASSERT_TRUE(is_of_prompt(got));
    EXPECT_EQ(got->request.prompts.front().sampling.max_new_tokens, num_tokens);
  }
}

TEST_F(DisaggregationFields, TheServiceOfAnswersTakesWhatItKnows) {
  EXPECT_EQ(peer_of(read(place("h2", 9000), Disaggregation::decode)), 1);
  EXPECT_EQ(peer_of(read(R"("bootstrap_room": 7)", Disaggregation::decode)), -1);
  EXPECT_FALSE(read(place("h2", 8998), Disaggregation::decode));
  EXPECT_FALSE(read(place("h0", 8998), Disaggregation::decode));
  EXPECT_EQ(peer_of(read(place("h1", 8998), Disaggregation::null)), -1)
      << "the mode was changed, and the router goes on";
  has_roles_ = false;
  EXPECT_FALSE(read(place("h1", 8998), Disaggregation::null)) << "it was started without one";
}

// The router of SGLang sends them for several texts, and null for a port that it was not given.
TEST_F(DisaggregationFields, ListsNameOneService) {
  const auto lists = [&](std::string_view hosts, std::string_view ports, std::string_view rooms) {
    return read(
        fmt::format(R"("bootstrap_host": [{}], "bootstrap_port": [{}], "bootstrap_room": [{}])",
                    hosts, ports, rooms),
        Disaggregation::decode);
  };
  EXPECT_EQ(peer_of(lists(R"("h2", "h2")", "9000, 9000", "1, 9223372036854775807")), 1);
  EXPECT_EQ(peer_of(lists(R"("h1", "h1")", "null, null", "1, 2")), 0);
  EXPECT_EQ(peer_of(lists(R"("h1")", "8998", "1")), 0);
  EXPECT_FALSE(lists(R"("h1", "h2")", "8998, 9000", "1, 2"));
  EXPECT_FALSE(lists(R"("h2", "h2")", "9000, 8998", "1, 2"));
  EXPECT_FALSE(lists(R"("h1", "h1")", "8998", "1, 2"));
  EXPECT_FALSE(lists(R"("h1", 1)", "8998, 8998", "1, 2"));
  EXPECT_FALSE(lists("", "", ""));
  std::string many = R"("h1")";
  for (int i = 0; i < kMaxPrompts; ++i) many += R"(, "h1")";
  const auto refused = read(fmt::format(R"("bootstrap_host": [{}])", many), Disaggregation::decode);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "bootstrap_host");
}

TEST_F(DisaggregationFields, InModeAutoTheOwnAddressMeansThePrompt) {
  EXPECT_TRUE(is_of_prompt(read(place("h0", 8998), Disaggregation::automatic)));
  EXPECT_TRUE(is_of_prompt(read(place("0.0.0.0", 8998), Disaggregation::automatic)));
  EXPECT_FALSE(read(place("h0", 9000), Disaggregation::automatic));
  EXPECT_FALSE(read(place("h3", 8998), Disaggregation::automatic));
  EXPECT_EQ(peer_of(read(place("h1", 8998), Disaggregation::automatic)), 0);
  reached_at_ = "h0";  // at the standard port
  EXPECT_TRUE(is_of_prompt(read(place("h0", 8998), Disaggregation::automatic)));
  reached_at_ = "";  // from another rank, which has checked the name
  EXPECT_TRUE(is_of_prompt(read(place("h3", 8998), Disaggregation::automatic)));
  EXPECT_EQ(peer_of(read(place("h1", 8998), Disaggregation::automatic)), 0) << "of the list";
  reached_at_ = "h1:30000";  // one list for all services names this one, too
  EXPECT_TRUE(is_of_prompt(read(place("h1", 8998), Disaggregation::automatic)));
}

// A client's change is always the last one; that of another rank has its number.
TEST(DisaggregationChange, TheChangeOfAnotherRankReplacesNoLaterOne) {
  PrefillRole role({.can_prefill = true});
  ASSERT_TRUE(change_disaggregation_mode(R"({"mode": "prefill"})", &role));
  const std::string old = role_change_body(role.last_change());
  ASSERT_TRUE(change_disaggregation_mode(R"({"mode": "null"})", &role));
  EXPECT_EQ(take_disaggregation_mode(old, &role).value()["disaggregation_mode"], "null");
  EXPECT_TRUE(take_disaggregation_mode(R"({"mode": "prefill", "change": 3})", &role));
  EXPECT_EQ(role.mode(), Disaggregation::prefill);
  for (const char* const body :
       {"", "{}", R"({"mode": "null"})", R"({"change": 4})", R"({"mode": "null", "change": -1})"})
    EXPECT_FALSE(take_disaggregation_mode(body, &role)) << body;
  EXPECT_FALSE(change_disaggregation_mode(R"({"mode": "null", "change": 9})", &role))
      << "clients name no number";
  EXPECT_FALSE(take_disaggregation_mode(old, nullptr));
  EXPECT_EQ(role.mode(), Disaggregation::prefill);
}

}  // namespace
}  // namespace hocket
