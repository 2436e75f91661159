#include "server/access/key_ring.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hocket {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kKeyFile = R"(# who may ask
ann   ann-secret-1  requests_per_minute=60 tokens_per_minute=1000 concurrency=2
ann   ann-secret-2  requests_per_minute=60 tokens_per_minute=1000 concurrency=2   # the new one

bob sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b
root root-secret admin
lonely-secret
)";

std::string complaint(std::string_view text) {
  const auto ring = KeyRing::parse(text, "keys");
  return ring ? "" : describe(ring.error());
}

TEST(KeyRing, ReadsNamesRolesAndLimits) {
  const auto ring = KeyRing::parse(kKeyFile, "keys");
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(ring->size(), 5u);
  const PrincipalPtr ann = ring->find("ann-secret-1");
  ASSERT_TRUE(ann);
  EXPECT_EQ(ann->name, "ann");
  EXPECT_EQ(ann->role, Role::user);
  EXPECT_EQ(ann->limits, (KeyLimits{60, 1000, 2}));
  EXPECT_TRUE(ann->alone);
  EXPECT_EQ(ring->find("ann-secret-2"), ann);
  EXPECT_EQ(ring->find("root-secret")->role, Role::admin);
  // printf lonely-secret | sha256sum
  EXPECT_EQ(ring->find("lonely-secret")->name, "key-9a051a12732a");
  EXPECT_EQ(ring->find("secret")->name, "bob");
  for (const char* wrong : {"", "ann", "ann-secret-", "ann-secret-12", "ANN-SECRET-1",
                            "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"})
    EXPECT_EQ(ring->find(wrong), nullptr) << wrong;
}

TEST(KeyRing, ComplaintsNameTheLineAndNoKey) {
  for (const char* bad :
       {"\nann hidden concurrency=0", "\nann hidden concurrency=x", "\nann hidden concurrency",
        "\nann hidden hidden", "\na/b hidden", "\nrank hidden", "\nann sha256:12hidden",
        "ann hidden\nbob hidden", "ann x concurrency=1\nann hidden concurrency=2",
        "ann x\nann hidden admin"}) {
    EXPECT_THAT(complaint(bad), HasSubstr("keys line 2")) << bad;
    EXPECT_THAT(complaint(bad), Not(HasSubstr("hidden"))) << bad;
  }
  std::string many;
  for (size_t i = 0; i <= KeyRing::kMaxKeys; ++i) many += fmt::format("n{} k{}\n", i, i);
  EXPECT_THAT(complaint(many), HasSubstr("more than 1000 keys"));
}

TEST(KeyRing, ABareKeyKeepsItsNameOnAnyLine) {
  const auto before = KeyRing::parse("a-secret\n", "keys");
  const auto after = KeyRing::parse("b-secret\n# moved\na-secret\n", "keys");
  ASSERT_TRUE(before && after);
  EXPECT_EQ(after->find("a-secret")->name, before->find("a-secret")->name);
  EXPECT_NE(after->find("b-secret")->name, before->find("a-secret")->name);
}

TEST(KeyRing, OnlyASharedKeyThatIsTheOnlyOneIsAnAdminsUnasked) {
  const auto plain = KeyRing::load({.api_key = "k", .admin_api_key = "", .file = ""});
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->find("k")->role, Role::admin);
  EXPECT_FALSE(plain->find("k")->alone);
  const auto both = KeyRing::load({.api_key = "k", .admin_api_key = "a", .file = ""});
  ASSERT_TRUE(both);
  EXPECT_EQ(both->find("k")->role, Role::user);
  EXPECT_EQ(both->find("a")->role, Role::admin);
  // Clients that a file names are users, and so is a shared key beside them.
  const std::string file =
      (std::filesystem::path(testing::TempDir()) / ("hocket_users_" + std::to_string(getpid())))
          .string();
  std::ofstream(file) << "ann ann-key\nbare-key\n";
  const auto users = KeyRing::load({.api_key = "k", .admin_api_key = "", .file = file});
  std::filesystem::remove(file);
  ASSERT_TRUE(users);
  for (const char* key : {"ann-key", "bare-key", "k"})
    EXPECT_EQ(users->find(key)->role, Role::user) << key;
  EXPECT_TRUE(KeyRing::load({})->empty());
  EXPECT_FALSE(KeyRing::load({.api_key = "k", .admin_api_key = "k", .file = ""}));
}

TEST(KeyRing, AFileThatCannotBeReadOrHasNoKeyLetsNobodyIn) {
  const std::string file =
      (std::filesystem::path(testing::TempDir()) / ("hocket_keys_" + std::to_string(getpid())))
          .string();
  EXPECT_EQ(KeyRing::load({.api_key = "", .admin_api_key = "", .file = file}).error().code,
            ErrorCode::io);
  std::ofstream(file) << "# nobody\n";
  EXPECT_EQ(KeyRing::load({.api_key = "", .admin_api_key = "", .file = file}).error().code,
            ErrorCode::bad_value);
  std::ofstream(file) << "ann secret\n";
  EXPECT_TRUE(KeyRing::load({.api_key = "", .admin_api_key = "", .file = file}));
  chmod(file.c_str(), 0600);
  EXPECT_FALSE(is_readable_by_others(file));
  chmod(file.c_str(), 0644);
  EXPECT_TRUE(is_readable_by_others(file));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace hocket
