#include "transport/api_keys.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "base/log.h"

namespace renga {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kKeyA[] = "key-a-0123456789";
constexpr char kKeyB[] = "key-b-0123456789";

std::string TenantOf(const ApiKeys& keys, std::string_view key) {
  const std::string* tenant = keys.TenantOf(key);
  return tenant == nullptr ? "(nobody)" : *tenant;
}

Status RefusalOf(std::string_view text) { return ApiKeys::Parse(text).status(); }

TEST(ApiKeysTest, EachKeyNamesItsTenant) {
  const auto keys = ApiKeys::Parse(
      "# who may call\n"
      "\n"
      "  team.a  key-a-0123456789  \r\n"
      "team_b\tkey-b-0123456789\n"
      "team.a key-c-0123456789");  // No newline at the end.
  ASSERT_TRUE(keys.ok()) << keys.status().ToString();
  EXPECT_EQ(TenantOf(**keys, kKeyA), "team.a");
  EXPECT_EQ(TenantOf(**keys, kKeyB), "team_b");
  EXPECT_EQ(TenantOf(**keys, "key-c-0123456789"), "team.a");
}

TEST(ApiKeysTest, NothingButAWholeKeyIsOne) {
  const auto keys = *ApiKeys::Parse("a key-a-0123456789\n");
  for (const std::string_view wrong :
       {"", "a", "key-a-012345678", "key-a-0123456789x", "KEY-A-0123456789",
        " key-a-0123456789", "a key-a-0123456789"}) {
    EXPECT_EQ(TenantOf(*keys, wrong), "(nobody)") << wrong;
  }
  EXPECT_EQ(TenantOf(*keys, std::string_view("key-a-0123456789\0", 17)), "(nobody)");
}

TEST(ApiKeysTest, AWrongLineIsNamedByItsNumberAndNeverShown) {
  const struct {
    std::string line;
    std::string complaint;
  } cases[] = {
      {"tenant", "must be: tenant key"},
      {"tenant SECRET-0123456789 more", "must be: tenant key"},
      {"tenant SECRET-01234567", "16 to 1024"},
      {"tenant SECRET-" + std::string(1024, 'x'), "16 to 1024"},
      {"tenant SECRET-0123456789\xc3\xa9", "printable ASCII"},
      {"ten/ant SECRET-0123456789", "tenant's name"},
      {"ten\xc3\xa4nt SECRET-0123456789", "tenant's name"},
      {std::string(129, 't') + " SECRET-0123456789", "tenant's name"},
  };
  for (const auto& c : cases) {
    const Status status = RefusalOf("# comment\na key-a-0123456789\n" + c.line + "\n");
    EXPECT_EQ(status.field(), "auth.keys_file");
    EXPECT_THAT(status.message(), AllOf(StartsWith("line 3: "), HasSubstr(c.complaint),
                                        Not(HasSubstr("SECRET"))));
  }
}

TEST(ApiKeysTest, BordersAreLegal) {
  EXPECT_TRUE(ApiKeys::Parse("t 0123456789abcdef").ok());
  EXPECT_TRUE(ApiKeys::Parse(std::string(128, 't') + " " + std::string(1024, 'k')).ok());
}

TEST(ApiKeysTest, AKeyThatComesTwiceIsRefusedWithBothLines) {
  const Status status = RefusalOf("a key-a-0123456789\nb key-a-0123456789\n");
  EXPECT_THAT(status.message(), AllOf(StartsWith("line 2: "), HasSubstr("line 1"),
                                      Not(HasSubstr("key-a-"))));
}

TEST(ApiKeysTest, AFileWithoutAnyKeyIsRefused) {
  for (const std::string_view text : {"", "\n\n", "# a key-a-0123456789\n"}) {
    EXPECT_EQ(RefusalOf(text).field(), "auth.keys_file");
  }
}

class ApiKeysFileTest : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  void Write(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::string LoggedWhileLoading() {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(ConfigureLog("info", "text").ok());
    EXPECT_TRUE(ApiKeys::Load(path_).ok());
    return testing::internal::GetCapturedStderr();
  }

  const std::string path_ =
      testing::TempDir() + "renga_api_keys_test_" + std::to_string(getpid());
};

TEST_F(ApiKeysFileTest, AFileIsReadAndItsLooseModeWarnedOf) {
  Write("a key-a-0123456789\n", 0600);
  EXPECT_EQ(TenantOf(**ApiKeys::Load(path_), kKeyA), "a");
  EXPECT_THAT(LoggedWhileLoading(), Not(HasSubstr("keys_file")));
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_THAT(LoggedWhileLoading(),
              AllOf(HasSubstr("keys_file_readable_by_all"), Not(HasSubstr(kKeyA))));
}

TEST_F(ApiKeysFileTest, WhatIsNoReadableFileIsRefusedByField) {
  for (const std::string& path : {path_ + "-absent", testing::TempDir()}) {
    const Status status = ApiKeys::Load(path).status();
    EXPECT_EQ(status.field(), "auth.keys_file");
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  Write(std::string((1 << 20) + 1, '\n'), 0600);
  EXPECT_THAT(ApiKeys::Load(path_).status().message(), HasSubstr("1 MiB"));
}

}  // namespace
}  // namespace renga
