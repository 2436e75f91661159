#include "server/apis/responses/input_page.h"

#include <gmock/gmock.h>

#include "server/http/json_body.h"

namespace hocket {
namespace {

using testing::ElementsAre;

Json item(const std::string& id, const std::string& text) {
  return {
      {"type", "message"}, {"id", id}, {"content", Json::array({{{"id", "in"}, {"text", text}}})}};
}

// Two turns whose texts look like the ends of items and like ids.
class InputPage : public testing::Test {
 protected:
  InputPage() {
    const Json first = {item("a", R"("}],[{"id":"x"})"), item("b", "\\")};
    const Json second = {item("c", "]}"), item("d\"\\", ""), item("e", R"(\"id":"y")")};
    for (const Json& turn : {first, second}) record_.turns.push_back(store_.keep(to_text(turn)));
    all_ = {first[0], first[1], second[0], second[1], second[2]};
  }
  Json page(const std::string& query) const {
    const auto text = input_page(record_, query, HeldBytes());
    return text ? Json::parse(*text) : Json(text.error().param);
  }
  static std::vector<std::string> ids(const Json& got) {
    std::vector<std::string> out;
    for (const Json& one : got["data"]) out.push_back(one["id"].get<std::string>());
    return out;
  }

  ResponseStore store_{ResponseStore::Limits{}};
  ResponseStore::Record record_;
  Json all_;
};

TEST_F(InputPage, HasWholeItems) {
  const Json got = page("order=asc");
  EXPECT_EQ(got["data"], all_);
  EXPECT_EQ(got["object"], "list");
  EXPECT_EQ(got["first_id"], "a");
  EXPECT_EQ(got["last_id"], "e");
  EXPECT_EQ(got["has_more"], false);
  EXPECT_THAT(ids(page("")), ElementsAre("e", "d\"\\", "c", "b", "a"));
}

TEST_F(InputPage, GoesOnWhereTheLastOneEnded) {
  const Json first = page("limit=3");
  EXPECT_THAT(ids(first), ElementsAre("e", "d\"\\", "c"));
  EXPECT_EQ(first["has_more"], true);
  const Json second = page("limit=2&after=c");
  EXPECT_THAT(ids(second), ElementsAre("b", "a"));
  EXPECT_EQ(second["has_more"], false);
  EXPECT_THAT(ids(page("order=asc&limit=1&after=b")), ElementsAre("c"));
  EXPECT_THAT(ids(page("after=d\"\\&limit=1")), ElementsAre("c"));
  const Json none = page("after=a");
  EXPECT_EQ(none["data"], Json::array());
  EXPECT_TRUE(none["first_id"].is_null());
  EXPECT_TRUE(none["last_id"].is_null());
  EXPECT_EQ(none["has_more"], false);
}

TEST_F(InputPage, KnowsNoOtherIds) {
  for (const char* id : {"in", "x", "y", "z"}) EXPECT_EQ(page(std::string("after=") + id), "after");
  for (const char* limit : {"0", "101", "x"})
    EXPECT_EQ(page(std::string("limit=") + limit), "limit");
  EXPECT_EQ(page("order=up"), "order");
}

TEST_F(InputPage, OfNothingIsEmpty) {
  record_.turns = {store_.keep("[]")};
  EXPECT_EQ(page(""), Json::parse(R"({"object":"list","data":[],"first_id":null,"last_id":null,
      "has_more":false})"));
}

}  // namespace
}  // namespace hocket
