#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/formats/import/cache.h"
#include "data/formats/import/hdf5.h"
#include "data/formats/open.h"
#include "tests/support/stores.h"

namespace athanor::import_test {

using namespace test;

/// The program that imports, beside this one.
std::filesystem::path program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "athanor";
}

/// A folder and a cache of a test's own.
class Import : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program())) GTEST_SKIP() << program() << " is not built";
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    try {
      write(dir_ / "a.h5", samples_);
    } catch (const IoError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  static void write(const std::filesystem::path& path, const std::vector<OwnedSample>& samples) {
    std::filesystem::remove(path);
    write_all(create_hdf5(path), samples);
  }
  std::unique_ptr<Dataset> open(const std::string& name = "a.h5", const std::string& fields = {}) const {
    return open_samples(dir_ / name, {.fields = fields});
  }
  /// The packed files in the cache.
  static std::vector<std::filesystem::path> packed() {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(import_folder())) {
      if (entry.path().extension() != ".lock") found.push_back(entry.path());
    }
    return found;
  }

  /// After the line that a source is imported.
  static std::string last_line(const std::filesystem::path& path) {
    std::string text = read_file(path);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
    text.pop_back();
    return text.substr(text.find('\n') + 1);
  }

  TempDir dir_, cache_;
  std::vector<OwnedSample> samples_ = raw_samples(20, 8, 9, 3, 10);
};

TEST_F(Import, PacksOnceAndReportsIt) {
  std::vector<std::string> said;
  const auto open_once = [&] {
    return open_samples(dir_ / "a.h5", {.on_import = [&](const std::string& line) { said.push_back(line); }});
  };
  expect_same(*open_once(), samples_);
  ASSERT_EQ(packed().size(), 1u);
  const auto file = packed()[0];
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(names(said[0], {"a.h5", "0.0 MB", file.string()}));
  EXPECT_EQ(file.string().rfind(cache_.path().string(), 0), 0u);
  const auto made = std::filesystem::last_write_time(file);
  expect_same(*open_once(), samples_);
  EXPECT_EQ(std::filesystem::last_write_time(file), made) << "nothing is made again";
  EXPECT_EQ(said.size(), 1u);
}

TEST_F(Import, RebuildsAStaleOrDamagedPackedFile) {
  open();
  // Another size; the same size at another time.
  samples_ = raw_samples(21, 8, 9, 3, 10);
  write(dir_ / "a.h5", samples_);
  expect_same(*open(), samples_);
  EXPECT_EQ(packed().size(), 1u) << "the stale one is gone";
  samples_[3].bytes[5] = '?';
  const auto time = std::filesystem::last_write_time(dir_ / "a.h5");
  write(dir_ / "a.h5", samples_);
  std::filesystem::last_write_time(dir_ / "a.h5", time + std::chrono::seconds(2));
  expect_same(*open(), samples_);
  // Cut short: seen when it is opened.
  std::filesystem::resize_file(packed()[0], 5000);
  expect_same(*open(), samples_);
  // A sample damaged: seen when it is read.
  std::string content = read_file(packed()[0]);
  content[4096] = static_cast<char>(content[4096] ^ 1);
  replace_file(packed()[0], content);
  std::vector<std::uint8_t> pixels(8 * 9 * 3);
  EXPECT_ERROR(IoError, open()->read(0, pixels), ".athp", "sample 0");
  EXPECT_TRUE(packed().empty()) << "the damaged one is gone";
  expect_same(*open(), samples_);
}

TEST_F(Import, AFileThatCannotBeReadIsOneLineAndLeavesNothing) {
  std::string content = read_file(dir_ / "a.h5");
  const std::size_t at = content.find(samples_[19].bytes);
  content[at] = static_cast<char>(content[at] ^ 1);
  replace_file(dir_ / "a.h5", content);
  EXPECT_ERROR(IoError, open(), "a.h5", "images", "0", "19");
  EXPECT_TRUE(packed().empty());
  EXPECT_ERROR(IoError, open("a.h5", "image=x,label=y"), "a.h5", "x");
}

TEST_F(Import, NamesAndFilesHaveAPackedFileEach) {
  write(dir_ / "b/a.h5", raw_samples(5, 2, 2, 1, 2));
  EXPECT_EQ(open()->size(), 20);
  EXPECT_EQ(open("a.h5", "image=images,label=/labels")->size(), 20);
  EXPECT_EQ(open("b/a.h5")->size(), 5);
  EXPECT_EQ(open()->size(), 20);
  EXPECT_EQ(packed().size(), 3u);
  EXPECT_ERROR(ArgumentError, open("a.h5", "mask=x"), "--fields");
}

TEST_F(Import, ALongNameIsImported) {
  std::string wide;
  for (int i = 0; i < 80; ++i) wide += "\u540d";  // three bytes
  std::string before = "a";
  for (const std::string& name : {std::string(240, 'a'), wide}) {
    std::filesystem::rename(dir_ / (before + ".h5"), dir_ / (name + ".h5"));
    expect_same(*open(name + ".h5"), samples_);
    before = name;
  }
}

TEST_F(Import, ConcurrentProcessesMakeOneFile) {
  write(dir_ / "a.h5", raw_samples(30, 64, 64, 3, 10));
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe(told.data()), 0);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0) continue;
    const auto tell = [&](const std::string&) { (void)!::write(told[1], "x", 1); };
    ::_exit(open_samples(dir_ / "a.h5", {.on_import = tell})->size() == 30 ? 0 : 1);
  }
  ::close(told[1]);
  for (const pid_t rank : ranks) {
    int status = -1;
    ::waitpid(rank, &status, 0);
    EXPECT_EQ(status, 0);
  }
  char word[4];
  EXPECT_EQ(::read(told[0], word, sizeof word), 1) << "one of them packs";
  ::close(told[0]);
  EXPECT_EQ(packed().size(), 1u);
}

// The tool under another name, so that the importing program is the one on PATH.
TEST_F(Import, AProgramThatIsMissingKilledOrSilentIsOneLine) {
  std::filesystem::copy_file(program(), dir_ / "tool");
  std::filesystem::create_directory(dir_ / "bin");
  const auto errors_with = [&](const std::string& script) {
    std::filesystem::remove(dir_ / "bin/athanor");
    if (!script.empty()) {
      write_file(dir_ / "bin/athanor", "#!/bin/sh\n" + script);
      ::chmod((dir_ / "bin/athanor").c_str(), 0700);
    }
    const std::string command =
        fmt::format("cd '{0}' && PATH='{0}/bin' ./tool inspect a.h5 >out 2>err", dir_.path().string());
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
    EXPECT_TRUE(packed().empty());
    return last_line(dir_ / "err");
  };
  EXPECT_TRUE(names(errors_with(""), {"a.h5", "athanor pack a.h5", "PATH"}));
  EXPECT_TRUE(names(errors_with("kill -9 $$\n"), {"a.h5", "athanor pack", "9"}));
  EXPECT_TRUE(names(errors_with("exit 5\n"), {"a.h5", "athanor pack", "5"}));
  EXPECT_TRUE(names(errors_with("echo one >&2; echo athanor: two >&2; exit 2\n"), {"a.h5", "two"}));
}

TEST_F(Import, AFullDiskLeavesNothing) {
  write(dir_ / "a.h5", raw_samples(64, 64, 64, 3, 10));
  const std::string command = fmt::format("ulimit -f 64; '{}' inspect '{}' 2>'{}'", program().string(),
                                          (dir_ / "a.h5").string(), (dir_ / "err").string());
  EXPECT_EQ(WEXITSTATUS(std::system(fmt::format("bash -c \"{}\"", command).c_str())), 2);
  EXPECT_TRUE(names(last_line(dir_ / "err"), {"a.h5"}));
  EXPECT_TRUE(packed().empty());
}

TEST(ImportFolder, IsWhereTheUserSaysOrBelowHome) {
  const TempDir cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  EXPECT_EQ(import_folder(), cache.path() / "athanor/imported");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // which the standard says to ignore
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", cache.path().c_str(), 1);
  EXPECT_EQ(import_folder(), cache.path() / ".cache/athanor/imported");
  ::unsetenv("HOME");
  EXPECT_ERROR(IoError, import_folder(), "XDG_CACHE_HOME");
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace athanor::import_test
