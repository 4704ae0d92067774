#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "data/formats/image_folder.h"
#include "data/formats/open.h"
#include "data/formats/tar.h"
#include "data/in_memory.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

// What a source holds is a sample, or is counted.

namespace athanor::unused_test {

namespace fs = std::filesystem;
using test::TempDir;
using test::write_file;

std::vector<std::string> names_of(const Dataset& data, const fs::path& folder) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < data.size(); ++i)
    names.push_back(fs::path(data.where(i)).lexically_relative(folder).string());
  return names;
}

TEST(ImageFolderUnused, CountsEachCauseAndReadsTheRest) {
  const TempDir dir;
  for (const char* name : {"cat/1.jpg", "cat/2.JPE", "cat/3.jfif", "cat/day1/4.png", "cat/day1/deep/5.webp",
                           "cat/6.bmp", "cat/7.tif", "cat/8.gif", "cat/.DS_Store", "cat/._1.jpg",
                           "cat/@eaDir/1.jpg", "dog/1.jpg", "$Recycle.Bin/1.jpg", "__MACOSX/cat/._1.jpg",
                           "empty/readme.txt", ".git/config", "at_the_top.jpg", "readme.md"})
    write_file(dir / name, name);
  const ImageFolder data(dir.path());
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(names_of(data, dir.path()),
            (std::vector<std::string>{"cat/1.jpg", "cat/2.JPE", "cat/3.jfif", "cat/day1/4.png",
                                      "cat/day1/deep/5.webp", "dog/1.jpg"}));
  const std::vector<Unused> expected{
      {"hidden files or folders", 3, {".git", "cat/.DS_Store", "cat/._1.jpg"}},
      {"folders of other programs", 3, {"$Recycle.Bin", "__MACOSX", "cat/@eaDir"}},
      {"images beside the folders of classes", 1, {"at_the_top.jpg"}},
      {"files of another type", 4, {"cat/6.bmp", "cat/7.tif", "cat/8.gif"}},
      {"folders without images", 1, {"empty"}},
      {"files beside the folders of classes", 1, {"readme.md"}}};
  std::vector<Unused> found = data.unused();
  EXPECT_EQ(found.size(), expected.size());
  for (const Unused& one : expected)
    EXPECT_NE(std::find(found.begin(), found.end(), one), found.end())
        << one.cause << " in: " << text_of(found);
}

// In a folder that may be listed but not entered, nothing is known of a file but its name.
TEST(ImageFolderUnused, OneFolderUnderSeveralNamesIsOneClass) {
  const TempDir dir;
  for (const char* name : {"set/cat/1.jpg", "set/dog/1.jpg", "elsewhere/1.jpg"}) write_file(dir / name, name);
  fs::create_directory_symlink("dog", dir / "set/ant");
  fs::create_directory_symlink("../elsewhere", dir / "set/bee");
  fs::create_directory_symlink("../elsewhere", dir / "set/wasp");
  const ImageFolder data(dir / "set");
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"bee", "cat", "dog"}));
  EXPECT_EQ(data.unused(),
            (std::vector<Unused>{{"folders that a link leads to twice", 2, {"ant/", "wasp/"}}}));
}

TEST(ImageFolderUnused, AFolderThatCannotBeEnteredIsAnError) {
  const TempDir dir;
  for (const char* name : {"set/cat/1.jpg", "set/dog/1.jpg"}) write_file(dir / name, name);
  fs::permissions(dir.path(), fs::perms(0755));
  const bool is_root = ::geteuid() == 0;
  for (const char* name : {"set", "set/cat"}) {
    SCOPED_TRACE(name);
    fs::permissions(dir / name, fs::perms(0644));
    if (is_root) {
      ASSERT_EQ(::seteuid(65534), 0);
    }
    EXPECT_ERROR(IoError, ImageFolder(dir / "set"), (dir / name).string(), std::strerror(EACCES));
    if (is_root) {
      ASSERT_EQ(::seteuid(0), 0);
    }
    fs::permissions(dir / name, fs::perms(0755));
  }
  fs::permissions(dir.path(), fs::perms(0600));
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  EXPECT_ERROR(IoError, open_samples(dir / "set"), (dir / "set").string(), std::strerror(EACCES));
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(dir.path(), fs::perms(0700));
}

TEST(ImageFolderUnused, PartsKeepTheAccount) {
  const TempDir dir;
  write_file(dir / "cat/1.jpg", "1");
  write_file(dir / "cat/2.bmp", "2");
  const auto all = std::make_shared<ImageFolder>(dir.path());
  EXPECT_EQ(Subset(all, {0}).unused(), all->unused());
}

TEST(TrainAndHeldOut, FoldersOfBothAreTwoSetsUnderAnyUsualName) {
  const std::vector<std::pair<const char*, const char*>> names{
      {"train", "val"},  {"train", "valid"},         {"train", "validation"}, {"train", "test"},
      {"Train", "Test"}, {"training", "validation"}, {"TRAINING", "testing"}, {"train", "dev"}};
  for (const auto& [train, name] : names) {
    SCOPED_TRACE(name);
    const TempDir dir;
    write_file(dir / train / "cat/1.jpg", "1");
    write_file(dir / train / "dog/1.jpg", "1");
    write_file(dir / name / "dog/1.jpg", "1");
    EXPECT_EQ(open_samples(dir.path())->class_names(), (std::vector<std::string>{"cat", "dog"}));
    const auto held_out = open_samples(dir.path(), {.split = Split::test});
    EXPECT_EQ(held_out->class_names(), (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(held_out->label(0), 1) << "the number that the class has in training";
    EXPECT_TRUE(has_parts(dir.path()));
    EXPECT_FALSE(has_parts(dir / train));
  }
  const TempDir flat;
  write_file(flat / "train/cat/1.jpg", "1");
  write_file(flat / "test/1.jpg", "1");
  EXPECT_ERROR(IoError, open_samples(flat.path()), (flat / "test").string());
  for (const char* alone : {"train", "Training", "val", "test"}) {
    const TempDir lonely;
    write_file(lonely / alone / "cat/1.jpg", "1");
    write_file(lonely / "more/1.jpg", "1");
    EXPECT_ERROR(IoError, open_samples(lonely.path()), (lonely / alone).string(), "--train");
  }
  const TempDir classes;  // called like the sets
  write_file(classes / "train/1.jpg", "1");
  write_file(classes / "test/1.jpg", "1");
  EXPECT_EQ(open_samples(classes.path())->class_names(), (std::vector<std::string>{"test", "train"}));
}

class TarOf {
 public:
  /// The files of a folder in the order of their names, as the program tar writes them.
  TarOf(const fs::path& folder, const fs::path& archive, const std::string& options = "") {
    const std::string command = "cd '" + folder.string() + "' && find . -type f -o -type l | sort | tar " +
                                options + " --transform 's|^\\./||' -cf '" + archive.string() + "' -T -";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
};

TEST(TarUnused, AHardLinkIsItsFile) {
  const TempDir dir;
  write_file(dir / "in/a.jpg", "the image");
  write_file(dir / "in/a.cls", "1");
  write_file(dir / "in/b.cls", "0");
  fs::create_hard_link(dir / "in/a.jpg", dir / "in/b.jpg");
  fs::create_symlink("a.jpg", dir / "in/c.jpg");
  for (const char* format : {"--format=gnu", "--format=posix", "--format=ustar"}) {
    SCOPED_TRACE(format);
    const TarOf made(dir / "in", dir / "a.tar", format);
    const auto data = open_tar(dir / "a.tar");
    ASSERT_EQ(data->size(), 2);
    std::vector<std::byte> scratch;
    for (const std::int64_t i : {0, 1}) EXPECT_EQ(data->fetch(i, scratch).bytes.size(), 9u);
    ASSERT_EQ(data->unused().size(), 1u);
    EXPECT_EQ(data->unused()[0].names, std::vector<std::string>{"c.jpg"});
  }
}

}  // namespace athanor::unused_test
