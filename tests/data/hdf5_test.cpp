#include "data/formats/import/hdf5.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#ifdef ATHANOR_TEST_HDF5
#include <hdf5.h>
#endif
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/formats/open.h"
#include "tests/support/stores.h"

namespace athanor::hdf5_test {

using namespace test;

#ifdef ATHANOR_TEST_HDF5
/// A cache of a test's own.
class Cache {
 public:
  Cache() { ::setenv("XDG_CACHE_HOME", dir_.path().c_str(), 1); }
  ~Cache() { ::unsetenv("XDG_CACHE_HOME"); }

  /// The packed files in it.
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(import_folder())) {
      if (entry.path().extension() == ".athp") found.push_back(entry.path());
    }
    return found;
  }
  const std::filesystem::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

/// Reads everything from front to back.
void read_through(const std::filesystem::path& path, const Hdf5Options& options = {}) {
  const auto samples = read_hdf5(path, options);
  for (std::int64_t i = 0; i < samples->size(); ++i) samples->next();
}

struct Size {
  std::int64_t count, height, width, channels, classes;
};

TEST(Hdf5, ALockedFileNamesWhatReadsItAllTheSame) {
  const TempDir dir;
  ::unsetenv("HDF5_USE_FILE_LOCKING");
  write_all(create_hdf5(dir / "a.h5"), raw_samples(5, 8, 9, 3, 10));
  const int other = ::open((dir / "a.h5").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);  // as a program that has it open for writing
  EXPECT_ERROR(IoError, read_through(dir / "a.h5"), "a.h5", "HDF5_USE_FILE_LOCKING=FALSE");
  ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
  read_through(dir / "a.h5");
  ::unsetenv("HDF5_USE_FILE_LOCKING");
  ::close(other);
}

TEST(Hdf5, AFileThatBecomesShorterIsNotReadAsZeros) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(5, 8, 9, 3, 10));
  const auto samples = read_hdf5(dir / "a.h5");
  const std::uintmax_t bytes = std::filesystem::file_size(dir / "a.h5");
  std::filesystem::resize_file(dir / "a.h5", bytes / 2);
  const auto read_rest = [&] {
    for (std::int64_t i = 0; i < samples->size(); ++i) samples->next();
  };
  EXPECT_ERROR(IoError, read_rest(), "a.h5", fmt::to_string(bytes), fmt::to_string(bytes / 2));
}

TEST(Hdf5, ReadsWhatItWrote) {
  // One image; odd sizes; more than a chunk; chunks of one image.
  for (const Size& s :
       std::vector<Size>{{1, 1, 1, 1, 1}, {13, 3, 2, 3, 70000}, {300, 64, 65, 1, 10}, {3, 700, 601, 3, 2}}) {
    for (const int deflate : {0, 6}) {
      const TempDir dir;
      const Cache cache;
      const auto samples = raw_samples(s.count, s.height, s.width, s.channels, s.classes);
      write_all(create_hdf5(dir / "a.h5", deflate), samples);
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1)
          << "nothing else is left";
      const auto store = open_hdf5(dir / "a.h5", {.classes = s.classes});
      EXPECT_EQ(store->spec(), (ImageSpec{s.height, s.width, s.channels, s.classes}));
      EXPECT_FALSE(store->resident());
      expect_same(*store, samples);
      expect_same(*open_hdf5(dir / "a.h5", {.images = "/images", .labels = "labels"}), samples);
    }
  }
}

TEST(Hdf5, ReadsWhatH5pyWrote) {
  const Cache cache;
  const auto path = std::filesystem::path(ATHANOR_GOLDEN_DIR) / "formats/h5py.h5";
  expect_same(*open_hdf5(path, {.images = "train/x", .labels = "train/y"}), golden_samples());
  EXPECT_ERROR(IoError, open_hdf5(path), "h5py.h5", "images", "labels", "x", "y");
}

TEST(Hdf5, RejectsUnsupportedSamplesAndLeavesNothing) {
  const TempDir dir;
  {
    const auto writer = create_hdf5(dir / "a.h5");
    EXPECT_THROW(writer->finish(), ArgumentError);
    EXPECT_THROW(writer->add(encoded_sample(Codec::png, 10, 0).view()), ArgumentError);
    writer->add(raw_samples(1, 2, 2, 3, 1)[0].view());
    EXPECT_THROW(writer->add(raw_samples(1, 2, 1, 3, 1)[0].view()), ArgumentError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THROW(create_hdf5(dir / "a.h5", 10), ArgumentError);
}

TEST(Hdf5, DamagedFilesAreOneLine) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(20, 4, 5, 3, 3));
  const Cache cache;
  const auto read = [&] { read_through(dir / "a.h5"); };
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5", {.images = "pics", .labels = "labels"}), "a.h5", "pics");
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5", {.images = "images", .labels = "images"}), "a.h5", "20",
               "[20, 4, 5, 3]");
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5", {.images = "labels", .labels = "labels"}), "a.h5", "labels",
               "u8", "astype(numpy.uint8)");
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5", {.classes = 2}), "a.h5", "[0, 2)", "2", "label 0");
  const std::string whole = read_file(dir / "a.h5");
  for (std::size_t length = 0; length < whole.size(); length += 41) {
    replace_file(dir / "a.h5", whole.substr(0, length));
    ASSERT_TRUE(names_place(message_of<IoError>(read), "a.h5")) << length;
  }
  const std::string pixel = raw_samples(20, 4, 5, 3, 3)[7].bytes;
  const std::size_t at = whole.find(pixel);
  ASSERT_NE(at, std::string::npos);
  std::string damaged = whole;
  damaged[at + 3] = static_cast<char>(damaged[at + 3] ^ 4);
  replace_file(dir / "a.h5", damaged);
  EXPECT_ERROR(IoError, read(), "a.h5", "images", "0", "19");
  write_file(dir / "a.h5", "not HDF5");
  EXPECT_ERROR(IoError, read(), "a.h5", "HDF5");
  EXPECT_ERROR(IoError, open_hdf5(dir / "none.h5"), "none.h5", std::strerror(ENOENT));
}

// Who reads a file he was sent does not read others that it names.
TEST(Hdf5, ImagesMustLieInTheFile) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(3, 2, 2, 1, 2));
  write_file(dir / "secret", std::string(12, 's'));
  constexpr std::array<hsize_t, 4> kShape{3, 2, 2, 1};
  const Cache cache;
  for (const bool external : {true, false}) {
    const std::string path = dir / (external ? "external.h5" : "virtual.h5");
    std::filesystem::copy_file(dir / "a.h5", path);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(4, kShape.data(), nullptr), how = H5Pcreate(H5P_DATASET_CREATE);
    if (external) {
      ASSERT_GE(H5Pset_external(how, (dir / "secret").c_str(), 0, 12), 0);
    } else {
      ASSERT_GE(H5Pset_virtual(how, space, (dir / "a.h5").c_str(), "images", space), 0);
    }
    const hid_t set = H5Dcreate2(file, "elsewhere", H5T_STD_U8LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    ASSERT_GE(set, 0);
    H5Dclose(set), H5Pclose(how), H5Sclose(space), H5Fclose(file);
    EXPECT_ERROR(IoError, open_hdf5(path, {.images = "elsewhere", .labels = "labels"}), path, "elsewhere");
  }
}

// Chunks that were never written cost nothing and read as zeros: a small file may claim any number of images.
TEST(Hdf5, MissingImagesAllocateNothing) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(3, 1, 1, 1, 1));
  const std::string whole = read_file(dir / "a.h5");
  const auto number = [](std::uint64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const Cache cache;
  for (const std::uint64_t claimed : {0, 2'000'000}) {
    std::string file = whole;
    for (const std::string& behind : {number(1) + number(1) + number(1), number(~std::uint64_t{0})}) {
      const std::size_t at = file.find(number(3) + behind);
      ASSERT_NE(at, std::string::npos);
      file.replace(at, sizeof claimed, number(claimed));
    }
    replace_file(dir / "a.h5", file);
    EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5"), "a.h5", std::to_string(claimed));
  }
}

/// Opens and reads everything: samples, or one line that names the file.
struct Outcomes {
  int samples = 0, lines = 0, lost = 0;

  void add(const std::filesystem::path& path) {
    const std::string line = message_of<IoError>([&] { read_through(path, {.patience_s = 20}); });
    if (line.empty()) {
      ++samples;
      return;
    }
    ++lines;
    if (holds(line, "libhdf5")) ++lost;
    ASSERT_TRUE(names_place(line, "a.h5")) << line;
  }
};

/// What a child process holds of this file; -1: there is no child.
pid_t child_of_this() {
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::gettid()));
  pid_t pid = -1;
  children >> pid;
  return children ? pid : -1;
}

// A file of 5 KiB, cut at many lengths, and with bits of its metadata flipped: as many children are forked as
// there are cases.
void damage(std::size_t cut_every, int flips) {
  const TempDir dir;
  write_all(create_hdf5(dir / "whole.h5", 6), raw_samples(3, 2, 3, 3, 3));
  const std::string whole = read_file(dir / "whole.h5");
  Outcomes cut, flipped;
  for (std::size_t length = 0; length < whole.size(); length += cut_every) {
    replace_file(dir / "a.h5", whole.substr(0, length));
    ASSERT_NO_FATAL_FAILURE(cut.add(dir / "a.h5")) << "cut at " << length;
  }
  EXPECT_EQ(cut.samples, 0);
  std::mt19937 random(1);
  for (int i = 0; i < flips; ++i) {
    std::string damaged = whole;
    const std::size_t at = random() % whole.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (i % 2 == 0 ? 1 << random() % 8 : 0xff));
    replace_file(dir / "a.h5", damaged);
    ASSERT_NO_FATAL_FAILURE(flipped.add(dir / "a.h5")) << "byte " << at;
  }
  EXPECT_GT(flipped.samples, 0) << "most bytes of so small a file are filling";
  EXPECT_GT(flipped.lines, 0);
  ::testing::Test::RecordProperty("lost", cut.lost + flipped.lost);
}

TEST(Hdf5, NoDamageEndsOrHangsTheReader) {
  damage(13, 400);
}
// Alone it would catch a length or a bit at which libhdf5 does what the others do not bring about.
TEST(Hdf5, ExhaustiveNoDamageEndsOrHangsTheReader) {
  damage(1, 2000);
}

TEST(Hdf5, ALostChildIsOneLineAndNothingIsKept) {
  const TempDir dir;
  const auto samples = raw_samples(40, 256, 256, 1, 10);  // far more than a socket holds
  write_all(create_hdf5(dir / "a.h5", 1), samples);
  {
    const auto sequence = read_hdf5(dir / "a.h5");
    EXPECT_EQ(sequence->next().label, samples[0].label);
    ASSERT_EQ(::kill(child_of_this(), SIGKILL), 0);
    const std::string line = message_of<IoError>([&] {
      for (;;) sequence->next();
    });
    EXPECT_TRUE(names(line, {"a.h5", "libhdf5", "9"}));
    EXPECT_EQ(child_of_this(), -1) << "no zombie";
  }
  {
    const auto sequence = read_hdf5(dir / "a.h5", {.patience_s = 0.2});
    ASSERT_EQ(::kill(child_of_this(), SIGSTOP), 0);
    const std::string line = message_of<IoError>([&] {
      for (;;) sequence->next();
    });
    EXPECT_TRUE(names(line, {"a.h5", "libhdf5", "0.2 s"}));
  }
  EXPECT_EQ(child_of_this(), -1);
  EXPECT_THROW(read_hdf5(dir / "a.h5", {.patience_s = 0}), ArgumentError);
  auto unread = read_hdf5(dir / "a.h5");
  EXPECT_GT(child_of_this(), 0);
  unread.reset();
  EXPECT_EQ(child_of_this(), -1) << "the child ends with the sequence";
}

/// What a process of its own prints when no file may grow beyond 64 KiB, and how it ends.
std::string output_of(const std::function<void()>& run, int& code) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  std::fflush(nullptr);  // or the child prints what is ours
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{64 << 10, 64 << 10};
    ::setrlimit(RLIMIT_FSIZE, &most);
    try {
      run();
    } catch (const IoError& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::exit(3);  // as main() does, with whatever libraries do then
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return text;
}

TEST(Hdf5, AFullDiskIsOneLine) {
  const TempDir dir;
  const auto samples = raw_samples(64, 64, 64, 3, 10);
  int code = 0;
  const std::string text = output_of([&] { write_all(create_hdf5(dir / "a.h5"), samples); }, code);
  EXPECT_EQ(code, 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_TRUE(has_line(text, {"hdf5", "sample"}));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Import, PacksOnceAndReportsIt) {
  const TempDir dir;
  const Cache cache;
  const auto samples = raw_samples(20, 8, 9, 3, 10);
  write_all(create_hdf5(dir / "a.h5"), samples);
  std::vector<std::string> said;
  const auto open = [&] {
    return open_samples(dir / "a.h5", {.on_import = [&](const std::string& line) { said.push_back(line); }});
  };
  expect_same(*open(), samples);
  ASSERT_EQ(cache.files().size(), 1u);
  const auto packed = cache.files()[0];
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(names(said[0], {"a.h5", "20", "0.0 MB", packed.string()}));
  EXPECT_EQ(packed.string().rfind(cache.path().string(), 0), 0u);
  const auto made = std::filesystem::last_write_time(packed);
  expect_same(*open(), samples);
  EXPECT_EQ(std::filesystem::last_write_time(packed), made) << "nothing is made again";
  EXPECT_EQ(said.size(), 1u);
}

TEST(Import, RebuildsAStaleOrDamagedPackedFile) {
  const TempDir dir;
  const Cache cache;
  auto samples = raw_samples(20, 8, 9, 3, 10);
  write_all(create_hdf5(dir / "a.h5"), samples);
  const auto open = [&] { return open_hdf5(dir / "a.h5"); };
  open();
  // Another size; the same size at another time.
  std::filesystem::remove(dir / "a.h5");
  samples = raw_samples(21, 8, 9, 3, 10);
  write_all(create_hdf5(dir / "a.h5"), samples);
  expect_same(*open(), samples);
  EXPECT_EQ(cache.files().size(), 1u) << "the stale one is gone";
  samples[3].bytes[5] = '?';
  const auto time = std::filesystem::last_write_time(dir / "a.h5");
  std::filesystem::remove(dir / "a.h5");
  write_all(create_hdf5(dir / "a.h5"), samples);
  std::filesystem::last_write_time(dir / "a.h5", time + std::chrono::seconds(2));
  expect_same(*open(), samples);
  // Cut short: seen when it is opened.
  std::filesystem::resize_file(cache.files()[0], 5000);
  expect_same(*open(), samples);
  // A sample damaged: seen when it is fetched.
  std::string content = read_file(cache.files()[0]);
  content[4096] = static_cast<char>(content[4096] ^ 1);
  replace_file(cache.files()[0], content);
  std::vector<std::byte> scratch;
  EXPECT_ERROR(IoError, open()->fetch(0, scratch), ".athp", "sample 0");
  EXPECT_TRUE(cache.files().empty()) << "the damaged one is gone";
  expect_same(*open(), samples);
}

TEST(Import, AFileThatCannotBeReadLeavesNothing) {
  const TempDir dir;
  const Cache cache;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(20, 8, 9, 3, 10));
  std::string content = read_file(dir / "a.h5");
  const std::size_t at = content.find(raw_samples(20, 8, 9, 3, 10)[19].bytes);
  content[at] = static_cast<char>(content[at] ^ 1);
  replace_file(dir / "a.h5", content);
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5"), "a.h5", "images", "0", "19");
  EXPECT_TRUE(cache.files().empty());
}

TEST(Import, OptionsAndFilesHaveAPackedFileEach) {
  const TempDir dir;
  const Cache cache;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(4, 2, 2, 1, 2));
  write_all(create_hdf5(dir / "b/a.h5"), raw_samples(5, 2, 2, 1, 2));
  EXPECT_EQ(open_hdf5(dir / "a.h5")->spec().classes, 2);
  EXPECT_EQ(open_hdf5(dir / "a.h5", {.classes = 7})->spec().classes, 7);
  EXPECT_EQ(open_hdf5(dir / "b/a.h5")->size(), 5);
  EXPECT_EQ(open_hdf5(dir / "a.h5")->size(), 4);
  EXPECT_EQ(cache.files().size(), 3u);
}

TEST(Import, ALongNameIsImported) {
  const TempDir dir;
  const Cache cache;
  const auto samples = raw_samples(4, 2, 2, 1, 2);
  write_all(create_hdf5(dir / "a.h5"), samples);
  const auto path = dir / (std::string(240, 'a') + ".h5");
  std::filesystem::rename(dir / "a.h5", path);
  expect_same(*open_hdf5(path), samples);
}

TEST(Import, ConcurrentProcessesMakeOneFile) {
  const TempDir dir;
  const Cache cache;
  const auto samples = raw_samples(30, 64, 64, 3, 10);
  write_all(create_hdf5(dir / "a.h5", 1), samples);
  std::array<int, 2> told{};
  ASSERT_EQ(::pipe(told.data()), 0);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0) continue;
    const auto store =
        open_hdf5(dir / "a.h5", {}, [&](const std::string&) { (void)!::write(told[1], "x", 1); });
    ::_exit(store->size() == 30 ? 0 : 1);
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
  EXPECT_EQ(cache.files().size(), 1u);
}

TEST(Import, TheCacheIsWhereTheUserSaysOrBelowHome) {
  const Cache cache;
  EXPECT_EQ(import_folder(), cache.path() / "athanor/imported");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // which the standard says to ignore
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", cache.path().c_str(), 1);
  EXPECT_EQ(import_folder(), cache.path() / ".cache/athanor/imported");
  ::unsetenv("HOME");
  EXPECT_ERROR(IoError, import_folder(), "XDG_CACHE_HOME");
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

#else
TEST(Hdf5, SaysThatItNeedsLibhdf5) {
  const TempDir dir;
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5"), "a.h5", "libhdf5");
  EXPECT_ERROR(IoError, create_hdf5(dir / "a.h5"), "a.h5", "libhdf5");
}
#endif

}  // namespace athanor::hdf5_test
