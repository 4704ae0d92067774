#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/decoded_dataset.h"
#include "data/formats/image_folder.h"
#include "data/formats/open.h"
#include "data/in_memory.h"
#include "data/synthetic.h"
#include "tests/support/temp_dir.h"

namespace athanor::data_id_test {

namespace fs = std::filesystem;
using test::TempDir;
using test::write_file;

void write_photos(const fs::path& folder) {
  for (const char* name : {"cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"})
    write_file(folder / name, name);
}

TEST(DataId, AFolderIsTheSameWhereverItLies) {
  const TempDir a, b;
  write_photos(a.path());
  write_photos(b.path());
  EXPECT_EQ(data_id(ImageFolder(a.path())), data_id(ImageFolder(b.path())));
}

TEST(DataId, WhateverIsExchangedInAFolderChangesIt) {
  const std::vector<std::function<void(const fs::path&)>> changes{
      [](const fs::path& in) { fs::rename(in / "cat", in / "cow"); },
      [](const fs::path& in) {
        fs::rename(in / "cat", in / "x");
        fs::rename(in / "dog", in / "cat");
        fs::rename(in / "x", in / "dog");
        write_file(in / "dog/1.jpg", "longer than before");
      },
      [](const fs::path& in) { fs::rename(in / "cat/1.jpg", in / "cat/0.jpg"); },
      [](const fs::path& in) { fs::rename(in / "cat/1.jpg", in / "dog/3.jpg"); },
      [](const fs::path& in) { write_file(in / "cat/1.jpg", "another photo"); },
      [](const fs::path& in) { write_file(in / "cat/1.jpg", "same size"); },
  };
  for (const auto& change : changes) {
    const TempDir dir;
    write_photos(dir.path());
    const std::uint64_t before = data_id(ImageFolder(dir.path()));
    change(dir.path());
    EXPECT_NE(data_id(ImageFolder(dir.path())), before);
  }
}

TEST(DataId, FilesOfEveryFormatAreKnownByTheirContent) {
  for (const char* file : {"a.athp", "a.npz", "a.tfrecord", "a.bin"}) {
    SCOPED_TRACE(file);
    std::vector<std::uint64_t> ids;
    for (const std::uint64_t seed : {1, 1, 2}) {
      const TempDir dir;
      const auto from = synthetic({4, 4, 3, 2}, 16, seed);
      const auto writer = create_samples(dir / file, {.classes = 2});
      std::vector<std::byte> scratch;
      for (std::int64_t i = 0; i < from->size(); ++i) writer->add(from->fetch(i, scratch));
      writer->finish();
      ids.push_back(data_id(*open_samples(dir / file)));
    }
    EXPECT_EQ(ids[0], ids[1]);
    EXPECT_NE(ids[0], ids[2]);
  }
}

TEST(DataId, TheLastByteOfALargeImageChangesIt) {
  const TempDir dir;
  const auto from = synthetic({64, 64, 3, 2}, 4);
  const auto writer = create_samples(dir / "images.npy", {.classes = 2});
  std::vector<std::byte> scratch;
  for (std::int64_t i = 0; i < from->size(); ++i) writer->add(from->fetch(i, scratch));
  writer->finish();
  const std::uint64_t before = data_id(*open_samples(dir / "images.npy"));
  std::string file = test::read_file(dir / "images.npy");
  file.back() = static_cast<char>(file.back() ^ 1);
  write_file(dir / "images.npy", file);
  EXPECT_NE(data_id(*open_samples(dir / "images.npy")), before);
}

TEST(DataId, DependsOnTheOrderAndOnClassNames) {
  const std::shared_ptr<const Dataset> data = synthetic({4, 4, 1, 2}, 4);
  EXPECT_NE(data_id(Subset(data, {0, 1, 2, 3})), data_id(Subset(data, {1, 0, 2, 3})));
  EXPECT_NE(data_id(InMemoryDataset(*data, {"a", "b"})), data_id(InMemoryDataset(*data, {"b", "a"})));
}

}  // namespace athanor::data_id_test
