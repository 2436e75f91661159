// Tests the files of saved sessions: whole, of one model, owner and name, and counted by owner; and
// that a folder which is too slow for them is not taken for one that has no pages.
#include "engine/session_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <string>

#include "base/folder_testing.h"
#include "engine/session_calls.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;

class SessionFilesTest : public testing::FolderTest {
 protected:
  static SessionTokens session(int num_tokens) {
    SessionTokens made{.name_space = {3, 4}, .tokens = {}};
    for (int i = 0; i < num_tokens; ++i) made.tokens.push_back(TokenId{7 * i});
    return made;
  }
  static PageKey form(uint8_t number) {
    PageKey key{};
    key.fill(number);
    return key;
  }
  fs::path only_file() const {
    fs::path found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file()) found = entry.path();
    return found;
  }
  std::optional<std::vector<TokenId>> read(const SessionFileName& name) const {
    auto found = files_.read(name);
    return found ? std::optional(std::move(found->tokens)) : std::nullopt;
  }

  const SessionFiles files_{folder_, form(1)};
  const SessionFileName name_{.owner = {1, 2}, .name = {5, 6}};
};

TEST_F(SessionFilesTest, ASessionIsReadAsItWasWritten) {
  EXPECT_FALSE(read(name_).has_value());
  const auto bytes = files_.write(name_, session(64));
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(*bytes, static_cast<int64_t>(fs::file_size(only_file())));
  const auto found = files_.read(name_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->tokens, session(64).tokens);
  EXPECT_EQ(found->name_space, session(64).name_space);
  ASSERT_TRUE(files_.write(name_, session(32)).has_value());
  EXPECT_EQ(read(name_), session(32).tokens);
  EXPECT_TRUE(files_.remove(name_));
  EXPECT_FALSE(files_.remove(name_));
  EXPECT_FALSE(read(name_).has_value());
}

// Lists that were not used for long may be deleted, so a use counts as one.
TEST_F(SessionFilesTest, ReadingIsAUseOfTheFile) {
  ASSERT_TRUE(files_.write(name_, session(8)).has_value());
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1000);
  fs::last_write_time(only_file(), long_ago);
  EXPECT_EQ(read(name_), session(8).tokens);
  EXPECT_GT(fs::last_write_time(only_file()), long_ago + std::chrono::hours(999));
}

TEST_F(SessionFilesTest, FindingIsNoUseAndReadsTheHeadAlone) {
  EXPECT_FALSE(files_.find(name_).has_value());
  ASSERT_TRUE(files_.write(name_, session(8)).has_value());
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1000);
  fs::last_write_time(only_file(), long_ago);
  EXPECT_EQ(files_.find(name_), 8);
  EXPECT_LT(fs::last_write_time(only_file()), long_ago + std::chrono::hours(1));
  EXPECT_FALSE(SessionFiles(folder_, form(2)).find(name_).has_value());
  const auto size = fs::file_size(only_file());
  for (const uintmax_t other : {uintmax_t{0}, size - 4, size + 4}) {
    fs::resize_file(only_file(), other);
    EXPECT_FALSE(files_.find(name_).has_value()) << other << " bytes";
  }
}

TEST_F(SessionFilesTest, BytesThatWereChangedCutOrAddedAreRefused) {
  ASSERT_TRUE(files_.write(name_, session(8)).has_value());
  const fs::path path = only_file();
  const auto size = fs::file_size(path);
  for (uintmax_t at = 0; at < size; ++at) {
    ASSERT_TRUE(files_.write(name_, session(8)).has_value());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
    file.close();
    EXPECT_FALSE(read(name_).has_value()) << "byte " << at;
  }
  for (const uintmax_t other : {uintmax_t{0}, size - 4, size - 1, size + 1, size + 4}) {
    ASSERT_TRUE(files_.write(name_, session(8)).has_value());
    ASSERT_TRUE(read(name_).has_value());
    fs::resize_file(path, other);
    EXPECT_FALSE(read(name_).has_value()) << other << " bytes";
  }
}

TEST_F(SessionFilesTest, AFileOfAnotherModelOwnerOrNameIsRefused) {
  const SessionFileName other_owner{.owner = {9, 9}, .name = name_.name};
  const SessionFileName other_name{.owner = name_.owner, .name = {9, 9}};
  for (const SessionFileName& other : {other_owner, other_name}) {
    fs::remove_all(folder_);
    ASSERT_TRUE(files_.write(other, session(8)).has_value());
    const fs::path foreign = only_file();
    ASSERT_TRUE(files_.write(name_, session(16)).has_value());
    ASSERT_EQ(read(name_), session(16).tokens);
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file() && entry.path() != foreign)
        fs::copy_file(foreign, entry.path(), fs::copy_options::overwrite_existing);
    EXPECT_FALSE(read(name_).has_value());
    EXPECT_EQ(read(other), session(8).tokens);
  }
  EXPECT_FALSE(SessionFiles(folder_, form(2)).read(other_name).has_value());
}

TEST_F(SessionFilesTest, EachOwnerHasANumberOfSessions) {
  ASSERT_TRUE(files_.write(name_, session(8)).has_value());
  const fs::path mine = only_file().parent_path();
  for (int i = 1; i < SessionFiles::kMax; ++i) std::ofstream(mine / std::to_string(i)) << "x";
  std::ofstream(mine / "unfinished-abcdef") << "x";  // another process is writing it
  const SessionFileName next{.owner = name_.owner, .name = {9, 9}};
  const auto full = files_.write(next, session(8));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::queue_full);
  EXPECT_TRUE(files_.write(name_, session(16)).has_value()) << "it takes its own place";
  const SessionFileName other{.owner = {9, 9}, .name = {9, 9}};
  EXPECT_TRUE(files_.write(other, session(8)).has_value());
  fs::remove(mine / "1");
  EXPECT_TRUE(files_.write(next, session(8)).has_value());
}

TEST_F(SessionFilesTest, TheSessionsOfAnOwnerHaveBytes) {
  const auto bytes = files_.write(name_, session(64));
  ASSERT_TRUE(bytes.has_value());
  const fs::path mine = only_file().parent_path();
  std::ofstream(mine / "large") << "x";
  fs::resize_file(mine / "large", static_cast<uintmax_t>(SessionFiles::kMaxBytes - 2 * *bytes));
  const SessionFileName next{.owner = name_.owner, .name = {9, 9}};
  const auto full = files_.write(next, session(65));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::queue_full);
  EXPECT_TRUE(files_.write(next, session(64)).has_value());
  EXPECT_TRUE(files_.write(name_, session(63)).has_value()) << "its own file goes";
  EXPECT_TRUE(files_.write({.owner = {9, 9}, .name = {9, 9}}, session(65)).has_value());
}

TEST_F(SessionFilesTest, AnErrorNamesNoPathAndLeavesTheOldFile) {
  std::ofstream(folder_) << "a file in the folder's place";
  const auto failed = files_.write(name_, session(8));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::io);
  for (const std::string& text : {failed.error().message, failed.error().fix})
    EXPECT_EQ(text.find(folder_.filename().string()), std::string::npos) << text;
  EXPECT_NE(failed.error().message.find("Not a directory"), std::string::npos);
  fs::remove(folder_);
  ASSERT_TRUE(files_.write(name_, session(8)).has_value());
  const SessionTokens too_long{.name_space = {},
                               .tokens = std::vector<TokenId>(SessionFiles::kMaxTokens + 1)};
  EXPECT_EQ(files_.write(name_, too_long).error().code, ErrorCode::request_too_big);
  EXPECT_EQ(read(name_), session(8).tokens);
}

TEST_F(SessionFilesTest, AFolderThatIsTooSlowForSessionsKeepsItsPages) {
  const auto store = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                                 FileStore::calls_for(folder_));
  const auto calls =
      std::make_shared<TimedCalls>(TimedCalls::Options{.name = "kv_files",
                                                       .target = "the folder",
                                                       .num_threads = 1,
                                                       .limit = std::chrono::milliseconds(10),
                                                       .fix = "look at its disk"});
  const std::vector<std::unique_ptr<RankLoop>> ranks;
  SessionCalls sessions({.files = store, .calls = calls, .form = form(1), .choose = {}}, ranks);
  const SessionRequest end{.action = SessionAction::end, .name = name_.name, .owner = name_.owner};
  EXPECT_EQ(sessions.change(end).error().code, ErrorCode::not_found);
  const auto mended = std::make_shared<std::promise<void>>();
  const auto hangs = calls->run<bool>([slow = mended->get_future()]() mutable -> Result<bool> {
    slow.wait();
    return true;
  });
  EXPECT_FALSE(hangs);
  EXPECT_EQ(sessions.change(end).error().code, ErrorCode::timed_out);
  EXPECT_FALSE(store->is_away());
  EXPECT_TRUE(store->exist({}));
  mended->set_value();
}

}  // namespace
}  // namespace hocket
