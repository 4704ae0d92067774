#include "data/formats/image_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data/decoded_dataset.h"
#include "data/formats/open.h"
#include "data/image/png.h"
#include "data/stratified_split.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"

namespace athanor::image_folder_test {

namespace fs = std::filesystem;
using test::TempDir;
using test::write_file;

std::string text_of(const StoredSample& sample) {
  return {reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()};
}

StoredSample encoded(const std::string& bytes, Codec codec, std::int64_t label) {
  return {.bytes = {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
          .codec = codec,
          .label = label};
}

TEST(ImageFolder, NamesPhotosThatItDoesNotReadWhereAClassHasNoOthers) {
  const TempDir dir;
  write_file(dir / "cat/1.jpg", "x");
  write_file(dir / "cat/2.heic", "x");
  EXPECT_EQ(ImageFolder(dir.path()).size(), 1) << "converted, and the original kept";
  write_file(dir / "dog/1.HEIC", "x");
  EXPECT_ERROR(IoError, ImageFolder(dir.path()), "dog/1.HEIC", "HEIC", "heif-convert");
}

TEST(ImageFolder, SaysHowToConvertAHeicPhoto) {
  const TempDir dir;
  const char head[] =
      "\0\0\0\x18"
      "ftypheic\0\0\0\0mif1heic";
  write_file(dir / "cat/1.jpg", std::string(head, sizeof head - 1));
  const DecodedDataset data(std::make_shared<ImageFolder>(dir.path()), {.height = 8, .width = 8});
  std::vector<std::uint8_t> pixels(8 * 8 * 3);
  EXPECT_ERROR(IoError, data.read(0, pixels), "cat/1.jpg", "HEIC", "heif-convert");
}

TEST(StratifiedSplit, TakesTheShareOfEachClassAndAlwaysTheSame) {
  const TempDir dir;
  const std::vector<std::pair<std::string, int>> classes{{"a", 10}, {"b", 3}, {"c", 1}, {"d", 2}};
  for (const auto& [name, count] : classes) {
    for (int i = 0; i < count; ++i) write_file(dir / name / fmt::format("{}.jpg", i), "x");
  }
  const auto folder = std::make_shared<ImageFolder>(dir.path());
  const auto names = [](const Dataset& data) {
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < data.size(); ++i) all.push_back(data.where(i));
    return all;
  };
  const auto [train, val] = stratified_split(folder, 0.2, 7);
  std::map<std::string, int> of_class;
  for (const std::string& name : names(*val)) ++of_class[fs::path(name).parent_path().filename()];
  EXPECT_EQ(of_class, (std::map<std::string, int>{{"a", 2}, {"b", 1}, {"d", 1}}))
      << "the only c is trained on";
  std::vector<std::string> both = names(*train), again = names(*stratified_split(folder, 0.2, 7).second);
  EXPECT_EQ(again, names(*val));
  EXPECT_NE(names(*stratified_split(folder, 0.2, 8).second), again);
  both.insert(both.end(), again.begin(), again.end());
  std::sort(both.begin(), both.end());
  EXPECT_EQ(both, names(*folder)) << "each is in one of them";
  EXPECT_THROW(stratified_split(folder, 1.0, 0), ArgumentError);
  const TempDir single;
  write_file(single / "a/1.jpg", "x");
  EXPECT_THROW(stratified_split(std::make_shared<ImageFolder>(single.path()), 0.5, 0), ArgumentError);
}

TEST(ImageFolder, ReadsFilesInByteOrder) {
  const TempDir dir;
  for (const char* file :
       {"b/2.jpg", "b/10.JPEG", "B/x.png", "\xc3\xa9/y.Jpg", "b/notes.txt", "b/jpg", "b/a.jpg.txt"})
    write_file(dir / file, file);
  std::filesystem::create_directories(dir / "empty");
  write_file(dir / "at_the_top.jpg", "not in a class");
  const ImageFolder data(dir.path());
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"B", "b", "\xc3\xa9"}))
      << "a folder without images is no class";
  EXPECT_EQ(data.spec(), (ImageSpec{0, 0, 0, 3}));
  ASSERT_EQ(data.size(), 4);
  std::vector<std::byte> scratch;
  const char* names[] = {"B/x.png", "b/10.JPEG", "b/2.jpg", "\xc3\xa9/y.Jpg"};
  const std::int64_t labels[] = {0, 1, 1, 2};
  for (std::int64_t i = 0; i < 4; ++i) {
    const StoredSample sample = data.fetch(i, scratch);
    EXPECT_EQ(text_of(sample), names[i]);
    EXPECT_EQ(sample.label, labels[i]);
    EXPECT_EQ(sample.codec, i == 0 ? Codec::png : Codec::jpeg);
    EXPECT_EQ(data.where(i), dir / names[i]);
  }
  EXPECT_FALSE(data.resident());
  EXPECT_THROW(data.fetch(4, scratch), ArgumentError);
  EXPECT_THROW(data.where(-1), ArgumentError);
  // What changed since is one line that names the file.
  std::filesystem::remove(dir / "b/2.jpg");
  EXPECT_ERROR(IoError, data.fetch(2, scratch), "image folder", (dir / "b/2.jpg").string(),
               std::strerror(ENOENT));
  std::filesystem::create_directories(dir / "b/2.jpg");
  EXPECT_ERROR(IoError, data.fetch(2, scratch), "image folder", (dir / "b/2.jpg").string(), "folder");
}

// macOS leaves ._a.jpg beside a.jpg; notebooks leave .ipynb_checkpoints/, which must not become a class.
TEST(ImageFolder, NeedsNoClassesWhereNoLabelIsWanted) {
  const TempDir dir;
  write_file(dir / "b.png", "2");
  write_file(dir / "a.jpg", "1");
  write_file(dir / "notes.txt", "x");
  EXPECT_ERROR(IoError, open_samples(dir.path()), "no class folders", "2 images");
  const auto images = open_samples(dir.path(), {.unlabelled = true});
  ASSERT_EQ(images->size(), 2);
  EXPECT_EQ(images->spec().classes, 1);
  EXPECT_TRUE(images->class_names().empty());
  EXPECT_EQ(images->where(1), (dir / "b.png").string());
  std::vector<std::byte> scratch;
  const StoredSample sample = images->fetch(0, scratch);
  EXPECT_EQ(text_of(sample), "1");
  EXPECT_EQ(sample.label, 0);
  EXPECT_NE(images->sample_id(0), images->sample_id(1));
  write_file(dir / "cat/1.jpg", "3");
  EXPECT_EQ(open_samples(dir.path(), {.unlabelled = true})->class_names(), std::vector<std::string>{"cat"});
  const TempDir other;
  write_file(other / "notes.txt", "x");
  EXPECT_ERROR(IoError, open_samples(other.path(), {.unlabelled = true}), "must contain", ".txt");
}

TEST(ImageFolder, HiddenFilesAndFoldersAreNoSamples) {
  const TempDir dir;
  for (const char* name : {".ipynb_checkpoints/a.jpg", "a/.hidden.jpg", "a/._a.jpg", "a/a.jpg"})
    write_file(dir / name, name);
  const ImageFolder data(dir.path());
  EXPECT_EQ(data.class_names(), std::vector<std::string>{"a"});
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(data.where(0), dir / "a/a.jpg");
}

TEST(ImageFolder, MayHaveAnyName) {
  const TempDir dir;
  write_file(dir / "photos-of-pets/cat/a.jpg", "a");
  EXPECT_EQ(format_of(dir / "photos-of-pets"), "image folder");
  write_file(dir / "train-00000-of-00002", "a");
  EXPECT_EQ(format_of(dir / "train-00000-of-00002"), "TFRecord file");
}

TEST(ImageFolder, AnEmptyOrMissingFolderIsAnIoError) {
  const TempDir dir;
  EXPECT_ERROR(IoError, ImageFolder(dir.path()), "image folder", dir.path().string(), ".jpg", ".jpeg", ".png",
               ".webp");
  write_file(dir / "1.jpg", "1");
  write_file(dir / "2.png", "2");
  EXPECT_ERROR(IoError, open_samples(dir.path()), "image folder", "2", (dir / "cat/1.jpg").string());
  EXPECT_ERROR(IoError, ImageFolder(dir / "nowhere"), "image folder", (dir / "nowhere").string());
}

TEST(ImageFolder, DecodesRealPhotos) {
  ATHANOR_NEEDS_DATA(photos, "imagenet-sample");
  const TempDir dir;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(photos)) {
    if (entry.path().extension() == ".JPEG") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    const auto folder = dir / (i % 2 ? "b" : "a");
    std::filesystem::create_directories(folder);
    std::filesystem::create_symlink(files[i], folder / files[i].filename());
  }
  const DecodedDataset data(std::make_shared<ImageFolder>(dir.path()),
                            {.height = 24, .width = 40, .random_crop = RandomResizedCrop{}},
                            {.height = 24, .width = 40}, 1);
  std::vector<std::uint8_t> image(2880);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data.read(i, image), i < 20 ? 0 : 1);
    EXPECT_GT(*std::max_element(image.begin(), image.end()),
              *std::min_element(image.begin(), image.end()) + 50);
    EXPECT_EQ(data.read_in_epoch(i, 2, image), i < 20 ? 0 : 1);
  }
}

TEST(ImageFolderWriter, ReadsWhatItWrote) {
  const TempDir dir;
  const std::vector<std::uint8_t> grey{1, 2, 3, 4, 5, 6};
  StoredSample raw{.bytes = std::as_bytes(std::span(grey)), .codec = Codec::raw, .label = 3};
  raw.height = 2;
  raw.width = 3;
  raw.channels = 1;
  {
    ImageFolderWriter writer(dir / "out");
    writer.add(encoded("one", Codec::jpeg, 3));
    writer.add(raw);
    writer.add(encoded("two", Codec::png, 0));
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
    writer.finish();
    EXPECT_THROW(writer.finish(), ArgumentError);
  }
  const ImageFolder data(dir / "out");
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"00000", "00001", "00002", "00003"}));
  ASSERT_EQ(data.size(), 3);
  std::vector<std::byte> scratch;
  EXPECT_EQ(data.where(0), dir / "out/00000/00000002.png");
  EXPECT_EQ(text_of(data.fetch(0, scratch)), "two");
  EXPECT_EQ(text_of(data.fetch(1, scratch)), "one");
  EXPECT_EQ(data.fetch(1, scratch).label, 3);
  PngDecoder png;
  png.open(data.fetch(2, scratch).bytes);
  const ImageView view = png.decode({0, 0, 2, 3});
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(view.pixels[3 * i], grey[i]);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);  // nothing else is left
  EXPECT_ERROR(IoError, ImageFolderWriter(dir / "out"), "image folder", (dir / "out").string());
}

TEST(ImageFolderWriter, ClassesKeepTheirNumbers) {
  const TempDir dir;
  for (const bool sorted : {true, false}) {
    const std::vector<std::string> names = sorted ? std::vector<std::string>{"ant", "bee", "cat"}
                                                  : std::vector<std::string>{"cat", "ant", "bee"};
    const auto path = dir / (sorted ? "sorted" : "unsorted");
    ImageFolderWriter writer(path, names);
    writer.add(encoded("x", Codec::jpeg, 2));
    EXPECT_THROW(writer.add(encoded("x", Codec::jpeg, 3)), ArgumentError);
    EXPECT_THROW(writer.add(encoded("x", Codec::jpeg, -1)), ArgumentError);
    writer.finish();
    const ImageFolder data(path);
    EXPECT_EQ(data.class_names(), sorted ? (std::vector<std::string>{"cat"})
                                         : (std::vector<std::string>{"00000_cat", "00001_ant", "00002_bee"}));
    std::vector<std::byte> scratch;
    EXPECT_EQ(data.fetch(0, scratch).label, sorted ? 0 : 2) << "a number in the name stays";
  }
}

TEST(ImageFolderWriter, RejectsUnsupportedSamplesAndLeavesNothing) {
  const TempDir dir;
  for (const std::string name : {"", ".", "..", "a/b"})
    EXPECT_THROW(ImageFolderWriter(dir / "out", {"fine", name}), ArgumentError) << name;
  EXPECT_THROW(ImageFolderWriter(dir / "out", {"twice", "twice"}), ArgumentError);
  {
    ImageFolderWriter writer(dir / "out");
    StoredSample four{.bytes = std::as_bytes(std::span("abc")), .codec = Codec::raw};
    four.height = four.width = 1;
    four.channels = 4;
    EXPECT_ERROR(ArgumentError, writer.add(four), "image folder", "1", "3", "4");
    four.channels = 3;
    EXPECT_ERROR(ArgumentError, writer.add(four), "image folder", "1x1x3", "4");
    four.height = four.width = std::int64_t{1} << 40;
    EXPECT_THROW(writer.add(four), ArgumentError) << "sides whose product overflows";
    EXPECT_THROW(writer.add(encoded("", Codec::png, 0)), ArgumentError);
    writer.add(encoded("x", Codec::jpeg, 0));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THROW(ImageFolderWriter("/proc/nowhere/out"), IoError);
}

TEST(ImageFolderWriter, ATrailingSlashChangesNothing) {
  const TempDir dir;
  const auto writer = create_samples(dir / "out/");
  writer->add(encoded("x", Codec::jpeg, 0));
  writer->finish();
  EXPECT_EQ(ImageFolder(dir / "out/").size(), 1);
  ImageFolderWriter same(dir / "same//");
  same.add(encoded("x", Codec::jpeg, 0));
  same.finish();
  EXPECT_EQ(ImageFolder(dir / "same").size(), 1);
}

}  // namespace athanor::image_folder_test
