#include "kernels/cuda/plan_folder.h"

#include <thread>
#include <vector>

#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace athanor::cuda::plan_folder_test {

const std::string kKey = "conv2d forward f16 x[256,28,28,128] on NVIDIA H200 sm_90 by 91900";
const StoredPlan kPlan{R"({"engineId":62,"knobs":[1,2,3]})", 0.25, 1.5};

struct PlanFolderTest : testing::Test {
  test::TempDir dir;
  PlanFolder folder{dir / "deep" / "plans", "NVIDIA H200 sm_90 x132", "driver 580.1, cuDNN 9.19.0"};

  Lookup lookup(const std::string& key = kKey) { return folder.load(key).first; }
};

TEST_F(PlanFolderTest, LoadsWhatWasSaved) {
  EXPECT_EQ(lookup(), Lookup::missing);
  ASSERT_TRUE(folder.save(kKey, kPlan));
  const auto [found, stored] = folder.load(kKey);
  EXPECT_EQ(found, Lookup::found);
  EXPECT_EQ(stored, kPlan);
  EXPECT_EQ(lookup("another key"), Lookup::missing);

  const StoredPlan none{"", 0, 0};
  ASSERT_TRUE(folder.save(kKey, none));
  EXPECT_EQ(folder.load(kKey).second, none);
}

TEST_F(PlanFolderTest, LeavesNothingElseBehind) {
  ASSERT_TRUE(folder.save(kKey, kPlan));
  ASSERT_TRUE(folder.save(kKey, kPlan));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "deep" / "plans"))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 1u);
}

TEST_F(PlanFolderTest, RejectsAFileWithAnyByteChanged) {
  ASSERT_TRUE(folder.save(kKey, kPlan));
  const std::string good = test::read_file(folder.path_of(kKey));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    test::write_file(folder.path_of(kKey), bad);
    ASSERT_EQ(lookup(), Lookup::rejected) << "byte " << i << ": " << bad;
  }
}

TEST_F(PlanFolderTest, RejectsForeignFiles) {
  ASSERT_TRUE(folder.save(kKey, kPlan));
  const std::string good = test::read_file(folder.path_of(kKey));
  const std::string other = [&] {
    PlanFolder(dir / "other").save("another key", kPlan);
    return test::read_file(PlanFolder(dir / "other").path_of("another key"));
  }();
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"),
        std::string("\0\xff\xfe", 3), std::string("{\"checksum\":1}"), good.substr(0, good.size() / 2),
        good + good, other, std::string(1 << 20, '['), std::string(3 << 20, ' ')}) {
    test::write_file(folder.path_of(kKey), text);
    EXPECT_EQ(lookup(), Lookup::rejected) << text.substr(0, 100);
  }
  std::filesystem::remove(folder.path_of(kKey));
  std::filesystem::create_directory(folder.path_of(kKey));
  EXPECT_EQ(lookup(), Lookup::rejected);
}

TEST_F(PlanFolderTest, TellsFilesMadeByOthersApart) {
  const auto with = [&](const char* device, const char* made_by) {
    return PlanFolder(dir / "deep" / "plans", device, made_by);
  };
  ASSERT_TRUE(folder.save(kKey, kPlan));
  const std::string text = test::read_file(folder.path_of(kKey));
  for (const char* part : {kKey.c_str(), "NVIDIA H200 sm_90 x132", "driver 580.1, cuDNN 9.19.0"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  const PlanFolder updated = with("NVIDIA H200 sm_90 x132", "driver 580.2, cuDNN 9.19.0");
  const PlanFolder moved = with("NVIDIA B200 sm_100 x148", "driver 580.1, cuDNN 9.19.0");
  EXPECT_EQ(updated.load(kKey), std::pair(Lookup::outdated, StoredPlan()));
  EXPECT_EQ(moved.load(kKey).first, Lookup::missing);
  // Made again, it takes the place of the old one.
  ASSERT_TRUE(updated.save(kKey, kPlan));
  EXPECT_EQ(updated.path_of(kKey), folder.path_of(kKey));
  EXPECT_EQ(updated.load(kKey).first, Lookup::found);
  EXPECT_EQ(lookup(), Lookup::outdated);
}

TEST_F(PlanFolderTest, TheDriversVersionIsTheKernelModules) {
  test::write_file(dir / "version", "580.159.03\n");
  EXPECT_EQ(kernel_driver_version(dir / "version"), "580.159.03");
  EXPECT_EQ(kernel_driver_version(dir / "none"), "unknown");
  EXPECT_EQ(dotted(91900, 10000, 100), "9.19.0");
  EXPECT_EQ(dotted(130102, 10000, 100), "13.1.2");
}

TEST_F(PlanFolderTest, AFolderThatCannotBeWrittenIsNoError) {
  test::write_file(dir / "file", "in the way");
  EXPECT_FALSE(PlanFolder(dir / "file").save(kKey, kPlan));
  EXPECT_EQ(PlanFolder(dir / "file").load(kKey).first, Lookup::missing);
  EXPECT_FALSE(PlanFolder({}).save(kKey, kPlan));
  EXPECT_EQ(PlanFolder({}).load(kKey).first, Lookup::missing);
}

TEST_F(PlanFolderTest, InvalidUnicodeIsNotSaved) {
  EXPECT_FALSE(folder.save(kKey, {"\xff\xfe", 0, 0}));
  EXPECT_EQ(lookup(), Lookup::missing);
}

TEST_F(PlanFolderTest, ReadersSeeOldOrNewWhileWritersWrite) {
  ASSERT_TRUE(folder.save(kKey, kPlan));
  const StoredPlan other{std::string(20000, 'x'), 3, 4};
  std::vector<std::thread> writers;
  for (const StoredPlan* plan : {&kPlan, &other}) {
    writers.emplace_back([&, plan] {
      for (int i = 0; i < 20; ++i) folder.save(kKey, *plan);
    });
  }
  for (int i = 0; i < 200; ++i) {
    const auto [found, stored] = folder.load(kKey);
    EXPECT_EQ(found, Lookup::found);
    EXPECT_TRUE(stored == kPlan || stored == other);
  }
  for (std::thread& writer : writers) writer.join();
}

struct Key {
  int number;

  bool operator==(const Key&) const = default;
  std::size_t hash() const { return static_cast<std::size_t>(number % 2); }  // they collide
};

TEST(BoundedCache, ForgetsWhenThereAreTooMany) {
  BoundedCache<Key, std::string> cache(3);
  for (int i = 0; i < 3; ++i) cache.insert({i}, std::to_string(i));
  cache.insert({2}, "two");
  EXPECT_EQ(*cache.find({0}), "0");
  EXPECT_EQ(*cache.find({2}), "two");
  cache.insert({3}, "3");
  EXPECT_EQ(cache.find({0}), nullptr);
  EXPECT_EQ(*cache.find({3}), "3");
  EXPECT_EQ(cache.size(), 1u);
}

}  // namespace athanor::cuda::plan_folder_test
