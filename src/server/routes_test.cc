#include "server/routes.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(Routes, AMethodIsAWholeName) {
  std::vector<Route> routes(1);
  routes[0].methods = "GET, POST";
  routes[0].path = "/here";
  for (const char* method : {"GET", "POST"}) EXPECT_TRUE(find_route(routes, method, "/here"));
  const std::string both(routes[0].methods);
  for (size_t begin = 0; begin < both.size(); ++begin)
    for (size_t count = 0; begin + count <= both.size(); ++count) {
      const std::string part = both.substr(begin, count);
      if (part == "GET" || part == "POST") continue;
      const auto found = find_route(routes, part, "/here");
      ASSERT_FALSE(found) << part;
      EXPECT_EQ(found.error().code, ErrorCode::method_not_allowed) << part;
      EXPECT_EQ(found.error().fix, "GET, POST");
    }
}

}  // namespace
}  // namespace hocket
