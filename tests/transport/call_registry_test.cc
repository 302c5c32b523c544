#include "transport/call_registry.h"

#include <gmock/gmock.h>

#include <memory>
#include <thread>

namespace renga {
namespace {

using Entry = CallRegistry::Entry;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr RequestId kOne{1};
constexpr RequestId kTwo{2};

TEST(CallRegistryTest, ACallIsFoundByEitherNameWhileItLives) {
  CallRegistry registry;
  {
    const Entry one(registry, kOne, "t", "mine");
    const Entry two(registry, kTwo, "t", "");
    EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"mine"}),
                ElementsAre(kOne));
    EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"2"}), ElementsAre(kTwo));
  }
  EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"mine", "1", "2"}),
              IsEmpty());
  EXPECT_EQ(registry.size(), 0u);
}

TEST(CallRegistryTest, ASharedNameMeansAllOfThemAndEachOnce) {
  CallRegistry registry;
  const Entry one(registry, kOne, "t", "same");
  auto two = std::make_unique<Entry>(registry, kTwo, "t", "same");
  EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"same", "1", "same"}),
              UnorderedElementsAre(kOne, kTwo));
  two.reset();
  EXPECT_EQ(registry.size(), 1u);
}

TEST(CallRegistryTest, ACallIsCancelledOnce) {
  CallRegistry registry;
  const Entry one(registry, kOne, "t", "mine");
  EXPECT_FALSE(registry.WasCancelled(kOne));
  EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"1"}), ElementsAre(kOne));
  EXPECT_TRUE(registry.WasCancelled(kOne));
  EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"1"}), IsEmpty());
  EXPECT_FALSE(registry.WasCancelled(kTwo));
}

TEST(CallRegistryTest, TenantsDoNotSeeEachOther) {
  CallRegistry registry;
  const Entry one(registry, kOne, "ab", "c");
  for (const std::string tenant : {"", "a", "b", "abc"}) {
    EXPECT_THAT(registry.Cancel(tenant, std::vector<std::string>{"c", "bc", "1", ""}),
                IsEmpty())
        << tenant;
  }
}

TEST(CallRegistryTest, ANameLikeAnotherCallsIdMeansBoth) {
  CallRegistry registry;
  const Entry one(registry, kOne, "t", "1");
  const Entry two(registry, kTwo, "t", "1");
  EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"1"}),
              UnorderedElementsAre(kOne, kTwo));
}

TEST(CallRegistryTest, NothingIsLeftOfCallsFromManyThreads) {
  CallRegistry registry;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&registry, t] {
      for (uint64_t i = 1; i <= 500; ++i) {
        const Entry entry(registry, RequestId{t * 1000 + i}, "t", "same");
        static_cast<void>(registry.Cancel("t", std::vector<std::string>{"same"}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.size(), 0u);
  EXPECT_THAT(registry.Cancel("t", std::vector<std::string>{"same"}), IsEmpty());
}

}  // namespace
}  // namespace renga
