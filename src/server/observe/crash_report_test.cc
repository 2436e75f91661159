#include "server/observe/crash_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace hocket {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kCrashFile =
    R"({"hocket_crash":1,"why":"signal 11 at address 0x8","last_words":"x.cc:3: CHECK failed",)"
    R"("thread":"engine1","pid":7,"unix":1700000000,"at_us":20000000,)"
    R"("about":{"version":"0.1.0","rank":1,"ranks":2,"model":"tiny"}}
{"at_us":1000000,"request":"began","id":"gen-a","path":"/generate","prompt_tokens":9,"texts":1}
{"at_us":18000000,"request":"began","id":"gen-b","path":"/generate","prompt_tokens":30,"texts":1}
{"at_us":2000000,"request":"ended","id":"gen-a","status":499,"code":"client_left",)"
    R"("generated":4,"total_ms":1000.0}
{"at_us":18100000,"step":40,"rank":1,"rows":30,"decode_rows":0,"seqs":1,"running":1,)"
    R"("waiting":0,"used_tokens":30,"took_us":5000}
{"at_us":19900000,"step":41,"rank":1,"rows":1,"decode_rows":1,"seqs":1,"running":1,"waiting":0,)"
    R"("used_tokens":31,"took_us":1500}
{"at_us":19950000,"step":42,"rank":1,"ro
--- backtrace
hocket(+0x1234)[0x5555]
--- status
Name:	hocket
VmRSS:	   12345 kB
)";

TEST(CrashReport, TellsWhatWasGoingOn) {
  std::istringstream file(kCrashFile);
  const auto text = crash_report(file, {.num_steps = 1, .seconds = 10});
  ASSERT_TRUE(text) << text.error().message;
  for (const char* part :
       {"why      signal 11 at address 0x8", "words    x.cc:3: CHECK failed",
        "2023-11-14 22:13:20 UTC, after 20.0 s", "thread engine1 of process 7, rank 1 of 2",
        "hocket 0.1.0, model tiny", "VmRSS:\t   12345 kB", "1 events were too long",
        "requests under way: 1\n  gen-b /generate, 30 prompt tokens, for 2.0 s",
        "requests that ended: 1", "gen-a 499 client_left, 4 tokens in 1000.0 ms",
        "rank 1: the last 1 of 2 steps", "step 41: 1 rows, 1 of answers, 1.50 ms",
        "hocket(+0x1234)[0x5555]"})
    EXPECT_THAT(*text, HasSubstr(part));
  EXPECT_THAT(*text, Not(HasSubstr("step 40:")));
  EXPECT_THAT(*text, HasSubstr("2.0 - 1.0       1       30       5.00       5.00"));
}

TEST(CrashReport, RefusesWhatIsNone) {
  for (const char* text : {"", "{}", "nonsense\n{}"}) {
    std::istringstream file(text);
    EXPECT_EQ(crash_report(file, {}).error().code, ErrorCode::bad_value);
  }
}

TEST(CrashReport, FieldsOfOtherTypesAreAnErrorAndNoCrash) {
  std::istringstream file("{\"hocket_crash\":1,\"why\":3}\n{\"step\":\"x\",\"rank\":[]}\n");
  EXPECT_FALSE(crash_report(file, {}));
}

}  // namespace
}  // namespace hocket
