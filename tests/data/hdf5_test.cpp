#include "data/formats/import/hdf5.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <fmt/format.h>
#ifdef ATHANOR_TEST_HDF5
#include <hdf5.h>
#endif
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/formats/field_names.h"
#include "tests/support/stores.h"

namespace athanor::hdf5_test {

using namespace test;

TEST(FieldNames, AreReadFromTheFlag) {
  const FieldNames both = field_names("label=b/c.h5:y,image=x");
  EXPECT_EQ(both.image, "x");
  EXPECT_EQ(both.label, "b/c.h5:y");
  EXPECT_EQ(field_names("image=x").label, "");
  EXPECT_EQ(field_names("").image, "");
  for (const char* bad : {"x", "image", "image=", "image=a,image=b", "mask=x", "=x"})
    EXPECT_ERROR(ArgumentError, field_names(bad), "--fields", bad);
}

#ifdef ATHANOR_TEST_HDF5
/// Adds a data set to a file, which it creates, as h5py would.
void put(const std::string& path, const char* name, hid_t type, std::vector<hsize_t> dims, const void* data) {
  const bool exists = std::filesystem::exists(path);
  const hid_t file = exists ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                            : H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  EXPECT_GE(set, 0);
  EXPECT_GE(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
  H5Dclose(set), H5Sclose(space), H5Fclose(file);
}

TEST(Hdf5, ALockedFileNamesWhatReadsItAllTheSame) {
  const TempDir dir;
  ::unsetenv("HDF5_USE_FILE_LOCKING");
  write_all(create_hdf5(dir / "a.h5"), raw_samples(5, 8, 9, 3, 10));
  const int other = ::open((dir / "a.h5").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);  // as a program that has it open for writing
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5"), "a.h5", "HDF5_USE_FILE_LOCKING=FALSE");
  ::close(other);
  EXPECT_EQ(open_hdf5(dir / "a.h5")->size(), 5);
}

TEST(Hdf5, AFileThatBecomesShorterIsNotReadAsZeros) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(5, 8, 9, 3, 10));
  const auto store = open_hdf5(dir / "a.h5");
  const std::uintmax_t bytes = std::filesystem::file_size(dir / "a.h5");
  std::filesystem::resize_file(dir / "a.h5", bytes / 2);
  EXPECT_ERROR(IoError, read_all(*store), "a.h5", fmt::to_string(bytes), fmt::to_string(bytes / 2));
}

TEST(Hdf5, ReadsWhatH5pyWrote) {
  const auto path = std::filesystem::path(ATHANOR_GOLDEN_DIR) / "formats/h5py.h5";
  expect_same(*open_hdf5(path, {.image = "train/x", .label = "train/y"}), golden_samples());
  EXPECT_ERROR(IoError, open_hdf5(path), "h5py.h5", "images", "labels", "x", "y", "--fields");
}

// As PatchCamelyon: x in one file, y [N, 1, 1, 1] in another.
TEST(Hdf5, LabelsMayLieInAnotherFileAndHaveAxesOfOne) {
  const TempDir dir;
  const auto samples = raw_samples(3, 2, 2, 3, 3);
  std::string pixels;
  std::vector<std::uint8_t> labels;
  for (const OwnedSample& sample : samples) {
    pixels += sample.bytes;
    labels.push_back(static_cast<std::uint8_t>(sample.label));
  }
  put(dir / "train_x.h5", "x", H5T_STD_U8LE, {3, 2, 2, 3}, pixels.data());
  EXPECT_ERROR(IoError, open_hdf5(dir / "train_x.h5"), "train_x.h5", "--fields");
  put(dir / "train_y.h5", "y", H5T_STD_U8LE, {3, 1, 1, 1}, labels.data());
  put(dir / "train_y.h5", "two", H5T_STD_U8LE, {3, 1}, labels.data());
  put(dir / "train_y.h5", "wide", H5T_STD_U8LE, {1, 3}, labels.data());
  expect_same(*open_hdf5(dir / "train_x.h5"), samples);
  expect_same(*open_hdf5(dir / "train_x.h5", {.image = "x", .label = "train_y.h5:two"}), samples);
  EXPECT_EQ(hdf5_files(dir / "train_x.h5", {}).size(), 2u);
  EXPECT_ERROR(IoError, open_hdf5(dir / "train_x.h5", {.label = "train_y.h5:wide"}), "train_y.h5", "[1, 3]");
  EXPECT_ERROR(IoError, open_hdf5(dir / "train_x.h5", {.label = "none.h5:y"}), "none.h5");
}

TEST(Hdf5, LabelsOfAnotherKindAreNumbers) {
  const TempDir dir;
  const std::vector<std::uint8_t> pixels(8);
  const std::vector<float> floats{1.5f, -2, 0, 3};
  put(dir / "a.h5", "images", H5T_STD_U8LE, {2, 2, 2, 1}, pixels.data());
  put(dir / "a.h5", "labels", H5T_IEEE_F32LE, {2, 2}, floats.data());
  const auto data = open_hdf5(dir / "a.h5", {}, LabelKind::values);
  EXPECT_EQ(data->numbers("labels"), (std::vector<double>{1.5, -2, 0, 3}));
  EXPECT_EQ(data->spec(), (ImageSpec{2, 2, 1, 2}));
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5", {.image = "images", .label = "images"}, LabelKind::values),
               "a.h5", "[2, 2, 2, 1]");
}

TEST(Hdf5, WhatDoesNotFitIsOneLine) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(20, 4, 5, 3, 3));
  const auto open = [&](const char* images, const char* labels) {
    return message_of<IoError>([&] { open_hdf5(dir / "a.h5", {.image = images, .label = labels}); });
  };
  EXPECT_TRUE(names(open("pics", "labels"), {"a.h5", "pics"}));
  EXPECT_TRUE(names(open("images", "images"), {"a.h5", "20", "[20, 4, 5, 3]"}));
  EXPECT_TRUE(names(open("labels", "labels"), {"a.h5", "labels", "u8", "astype(numpy.uint8)"}));
  std::string damaged = read_file(dir / "a.h5");
  const std::size_t at = damaged.find(raw_samples(20, 4, 5, 3, 3)[7].bytes);
  ASSERT_NE(at, std::string::npos);
  damaged[at + 3] = static_cast<char>(damaged[at + 3] ^ 4);
  replace_file(dir / "a.h5", damaged);
  EXPECT_ERROR(IoError, read_all(*open_hdf5(dir / "a.h5")), "a.h5", "images", "0", "19");
  write_file(dir / "a.h5", "not HDF5");
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5"), "a.h5", "HDF5");
  EXPECT_ERROR(IoError, open_hdf5(dir / "none.h5"), "none.h5", std::strerror(ENOENT));
}

// Who reads a file he was sent does not read others that it names.
TEST(Hdf5, ImagesMustLieInTheFile) {
  const TempDir dir;
  write_all(create_hdf5(dir / "a.h5"), raw_samples(3, 2, 2, 1, 2));
  write_file(dir / "secret", std::string(12, 's'));
  constexpr std::array<hsize_t, 4> kShape{3, 2, 2, 1};
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
    EXPECT_ERROR(IoError, open_hdf5(path, {.image = "elsewhere", .label = "labels"}), path, "elsewhere");
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

#else
TEST(Hdf5, SaysThatItNeedsLibhdf5) {
  const TempDir dir;
  EXPECT_ERROR(IoError, open_hdf5(dir / "a.h5"), "a.h5", "libhdf5");
  EXPECT_ERROR(IoError, create_hdf5(dir / "a.h5"), "a.h5", "libhdf5");
}
#endif

}  // namespace athanor::hdf5_test
