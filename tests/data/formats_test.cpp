#include <unistd.h>

#include "data/formats/cifar.h"
#include "data/formats/idx.h"
#include "data/formats/join.h"
#include "data/formats/mnist.h"
#include "data/formats/open.h"
#include "data/formats/raw.h"
#include "data/synthetic.h"
#include "tensor/io/atomic_file.h"
#include "tests/support/stores.h"

namespace athanor::formats_test {

using namespace test;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

TEST(IdxStore, WritesTheBytesOfTheFormatThatMnistReads) {
  const TempDir dir;
  std::vector<OwnedSample> samples = raw_samples(2, 2, 3, 1, 10);
  samples[0].label = 7;
  write_all(create_idx(dir / "train-images-idx3-ubyte"), samples);
  EXPECT_EQ(read_file(dir / "train-images-idx3-ubyte"), big_endian(0x803) + big_endian(2) + big_endian(2) +
                                                            big_endian(3) + samples[0].bytes +
                                                            samples[1].bytes);
  EXPECT_EQ(read_file(dir / "train-labels-idx1-ubyte"),
            big_endian(0x801) + big_endian(2) + std::string("\7\0", 2));
  EXPECT_EQ(mnist(dir.path(), Split::train)->labels()[0], 7);
  EXPECT_EQ(open_idx(dir / "train-images-idx3-ubyte")->spec().classes, 8) << "the largest label + 1";
}

TEST(IdxStore, TakesLabelsOfEveryWholeType) {
  const TempDir dir;
  write_file(dir / "images", big_endian(0x803) + big_endian(2) + big_endian(1) + big_endian(1) + "ab");
  const auto labels_of = [&](std::uint32_t type, const std::string& bytes) {
    write_file(dir / "labels", big_endian(type << 8 | 1) + big_endian(2) + bytes);
    const auto store = open_idx(dir / "images");
    std::vector<std::byte> scratch;
    return std::pair{store->fetch(0, scratch).label, store->fetch(1, scratch).label};
  };
  EXPECT_EQ(labels_of(0x08, {'\xff', 1}), (std::pair<std::int64_t, std::int64_t>{255, 1}));
  EXPECT_EQ(labels_of(0x09, {'\x7f', 1}), (std::pair<std::int64_t, std::int64_t>{127, 1}));
  EXPECT_EQ(labels_of(0x0b, {1, 2, 0, 3}), (std::pair<std::int64_t, std::int64_t>{258, 3}));
  EXPECT_EQ(labels_of(0x0c, big_endian(70000) + big_endian(5)),
            (std::pair<std::int64_t, std::int64_t>{70000, 5}));
  EXPECT_ERROR(IoError, labels_of(0x09, {1, '\xff'}), "labels", "9", "label", "[0, 2147483648)", "-1");
  EXPECT_ERROR(IoError, labels_of(0x0d, std::string(8, 0)), "labels", "0x08", "0x09", "0x0b", "0x0c", "0x0d");
  EXPECT_ERROR(IoError, labels_of(0x08, "abc"), "labels", "10");
}

TEST(IdxStore, SizesAreComparedWithTheFile) {
  const TempDir dir;
  write_all(create_idx(dir / "images"), raw_samples(3, 2, 2, 3, 3));
  const auto read = [&] { read_all(*open_idx(dir / "images")); };
  write_file(dir / "images", big_endian(0x804) + big_endian(0xffffffff) + big_endian(0xffffffff) +
                                 big_endian(0xffffffff) + big_endian(0xffffffff));
  EXPECT_ERROR(IoError, read(), "images", "8", "height", "width", "channels");
  write_file(dir / "images", big_endian(0x804) + big_endian(0xffffffff) + big_endian(0x4000) +
                                 big_endian(0x4000) + big_endian(4));
  EXPECT_ERROR(IoError, read(), "labels", "4294967295");
  write_file(dir / "images",
             big_endian(0x804) + big_endian(3) + big_endian(0x4000) + big_endian(0x4000) + big_endian(4));
  EXPECT_ERROR(IoError, read(), "images", "20", "3221225472");
  std::filesystem::remove(dir / "labels");
  write_file(dir / "images", big_endian(0x803) + big_endian(1) + big_endian(1) + big_endian(1) + "a");
  EXPECT_ERROR(IoError, read(), "labels");
}

TEST(Writers, RejectLabelsAndNamesOfTheirFormat) {
  const TempDir dir;
  const auto raw = raw_samples(1, 2, 2, 3, 3);
  EXPECT_THROW(create_raw(dir / "x.bin", 2)->add(raw[0].view()), ArgumentError) << "label 2 of 2 classes";
  EXPECT_THROW(create_idx(dir / "pixels"), ArgumentError);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(CifarStore, ReadsWhatItWrote) {
  for (const std::int64_t classes : {10, 100}) {
    for (const std::int64_t count : {1, 7}) {
      const TempDir dir;
      const auto samples = raw_samples(count, 32, 32, 3, classes);
      write_file(dir / "c.bin", cifar_file(samples, classes));
      const auto store = open_cifar(dir / "c.bin", classes);
      EXPECT_EQ(store->spec(), (ImageSpec{32, 32, 3, classes}));
      expect_same(*store, samples);
    }
  }
}

TEST(CifarStore, TurnsPlanesBehindTheLabelIntoPixels) {
  const TempDir dir;
  std::string file(3073, '\0');
  file[0] = 9;
  file[1] = 'r', file[1 + 1024] = 'g', file[1 + 2048 + 1023] = 'b';
  write_file(dir / "c.bin", file);
  EXPECT_THROW(open_cifar(dir / "c.bin", 11), ArgumentError);
  std::vector<std::byte> scratch;
  const StoredSample sample = open_cifar(dir / "c.bin", 10)->fetch(0, scratch);
  EXPECT_EQ(sample.label, 9);
  EXPECT_EQ(sample.bytes[0], std::byte{'r'});
  EXPECT_EQ(sample.bytes[1], std::byte{'g'});
  EXPECT_EQ(sample.bytes[3071], std::byte{'b'});
}

TEST(CifarStore, DamagedFilesAreOneLine) {
  const TempDir dir;
  write_file(dir / "c.bin", cifar_file(raw_samples(2, 32, 32, 3, 10), 10));
  const auto read = [&] { read_all(*open_cifar(dir / "c.bin", 10)); };
  std::string file = read_file(dir / "c.bin");
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{3072}, std::size_t{3074}, file.size() - 1}) {
    write_file(dir / "c.bin", file.substr(0, length));
    EXPECT_ERROR(IoError, read(), "c.bin", "3073", std::to_string(length));
  }
  file[3073] = 10;
  write_file(dir / "c.bin", file);
  EXPECT_ERROR(IoError, read(), "c.bin", "3073", "label", "[0, 10)", "10");
  EXPECT_ERROR(IoError, open_cifar(dir.path(), 10), "data_batch_1.bin");
}

TEST(CifarStore, AFolderIsItsFilesOneAfterTheOther) {
  ATHANOR_NEEDS_DATA(folder, "cifar10");
  const auto store = open_cifar(folder, 10);
  const auto known = cifar10(folder, Split::train);
  ASSERT_EQ(store->size(), known->size());
  std::vector<std::byte> scratch;
  std::vector<std::uint8_t> image(3072);
  for (std::int64_t i = 0; i < store->size(); i += 997) {
    const StoredSample sample = store->fetch(i, scratch);
    EXPECT_EQ(sample.label, known->read(i, image));
    EXPECT_EQ(std::memcmp(sample.bytes.data(), image.data(), 3072), 0);
  }
}

// Files and folders under the names of writers that were killed: of a process that is gone, and of one that
// had this one's number.
TEST(Writers, RemoveWhatKilledOnesHaveLeft) {
  const TempDir dir;
  const auto samples = raw_samples(3, 2, 2, 3, 2);
  for (const char* name : {"a.bin", "a.athp", "images.npy", "photos"}) {
    SCOPED_TRACE(name);
    const std::string end = name == std::string("photos") ? ".partial" : ".tmp";
    const auto left = dir / (name + std::string(".7-3") + end),
               locked = dir / (name + std::string(".7-4") + end);
    for (const auto& path : {left, locked}) write_file(end == ".tmp" ? path : path / "1/2.png", "half");
    const int lock = lock_unfinished(locked);  // fails for a file
    const AtomicFile other(dir / name);
    write_file(dir / "other.7-3.tmp", "another destination");
    write_all(create_samples(dir / name), samples);
    EXPECT_FALSE(std::filesystem::exists(left));
    EXPECT_TRUE(std::filesystem::exists(end == ".tmp" ? other.temporary() : locked)) << "still being written";
    EXPECT_TRUE(std::filesystem::exists(dir / "other.7-3.tmp"));
    if (lock >= 0) ::close(lock);
    EXPECT_EQ(open_samples(dir / name)->size(), 3);
  }
}

TEST(RawStore, TakesShapeOffsetAndLabelsFromItsJson) {
  const TempDir dir;
  write_file(dir / "x.bin", "headABCDEFGHIJKL");
  const auto read = [&](const std::string& more) {
    replace_file(dir / "x.json", R"({"height": 1, "width": 2, "channels": 3, "offset": 4)" + more + "}");
    return open_raw(dir / "x.bin");
  };
  expect_same(*read(""), {{"ABCDEF", Codec::raw, 1, 2, 3, 0}, {"GHIJKL", Codec::raw, 1, 2, 3, 0}});
  EXPECT_TRUE(names(read("")->where(1), {(dir / "x.bin").string(), "10"}));
  for (const std::string type : {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"}) {
    const std::size_t width = static_cast<std::size_t>(std::stoi(type.substr(1))) / 8;
    const std::string labels = R"(, "labels": "labels", "label_dtype": ")" + type + '"';
    std::string label(width, '\0'), negative(width, '\xff');
    label[0] = 5;
    write_file(dir / "labels", label + label);
    EXPECT_EQ(read(labels)->spec().classes, 6) << type;
    write_file(dir / "labels", label + label + "x");
    EXPECT_ERROR(IoError, read(labels), "labels", std::to_string(2 * width));
    write_file(dir / "labels", label + negative);
    const bool small = type == "u8" || type == "u16";
    if (!small) {
      EXPECT_ERROR(IoError, read(labels), "labels", std::to_string(width), "label", "[0, 2147483648)");
    }
  }
}

TEST(RawStore, ItsJsonHoldsWholeNumbersAndKnownNames) {
  const TempDir dir;
  write_file(dir / "x.bin", "ABCDEF");
  const auto message = [&](const std::string& entry) {
    replace_file(dir / "x.json", R"({"height": 1, "channels": 3, "classes": 1, )" + entry + "}");
    return message_of<IoError>([&] { open_raw(dir / "x.bin"); });
  };
  for (const std::string width : {R"("2")", "2.5", "-2", "null", "18446744073709551615"}) {
    EXPECT_TRUE(names(message(R"("width": )" + width), {"x.json", "width", "0"}));
  }
  EXPECT_TRUE(names(message(R"("width": 2, "wide": 2)"), {"x.json", "wide"}));
}

TEST(RawStore, HostileDescriptionsAreOneLine) {
  const TempDir dir;
  write_all(create_raw(dir / "x.bin"), raw_samples(3, 2, 2, 3, 3));
  const auto read = [&] { read_all(*open_raw(dir / "x.bin")); };
  for (const char* hostile : {"[]", "{}", "{\"height\": -1}", "{\"height\": 1e999}",
                              "{\"height\": 18446744073709551615, \"width\": 1}",
                              "{\"height\": 4294967296, \"width\": 4294967296, \"channels\": 4294967296}",
                              "{\"height\": 2, \"width\": 2, \"dtype\": \"f32\"}",
                              "{\"height\": 2, \"width\": 2, \"labels\": \"../x\"}",
                              "{\"height\": 2, \"width\": 2, \"lables\": \"x\"}",
                              "{\"height\": 2, \"width\": 2, \"offset\": 9223372036854775807}",
                              "{\"height\": 2, \"width\": 2, \"label_dtype\": 3}",
                              "{\"height\": 2, \"width\": 2, \"classes\": 2147483649}"}) {
    write_file(dir / "x.json", hostile);
    EXPECT_TRUE(names_place(message_of<IoError>(read), dir.path().string())) << hostile;
  }
  std::filesystem::remove(dir / "x.json");
  EXPECT_ERROR(IoError, read(), "x.json", "height", "width", "channels");
}

/// Another's images, one at a time.
struct Again final : ImageDataset {
  explicit Again(const Dataset& from) : source(from) {}
  std::int64_t size() const override { return source.size(); }
  const ImageSpec& spec() const override { return source.spec(); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    return source.read(index, pixels);
  }
  const Dataset& source;
};

TEST(ImageDataset, IsStoredAsTheRawImagesItReads) {
  const std::shared_ptr<const Dataset> data = synthetic({3, 5, 3, 4}, 17);
  const Again again(*data);
  EXPECT_EQ(again.fields(), (std::vector<FieldSpec>{{"image", DType::u8, {3, 5, 3}, FieldKind::picture},
                                                    {"label", DType::i64}}));
  std::vector<OwnedSample> samples;
  for (std::int64_t i = 0; i < data->size(); ++i) {
    OwnedSample sample{std::string(45, '\0'), Codec::raw, 3, 5, 3, 0};
    sample.label = data->read(i, {reinterpret_cast<std::uint8_t*>(sample.bytes.data()), 45});
    samples.push_back(sample);
  }
  expect_same(again, samples);
  expect_same(*data, samples);
}

TEST(Dataset, ReadsRawImagesOfOneSizeAndNoOthers) {
  const TempDir dir;
  const auto samples = raw_samples(3, 2, 5, 3, 7);
  write_all(create_raw(dir / "a.bin"), samples);
  const auto data = open_raw(dir / "a.bin");
  std::vector<std::uint8_t> pixels(30);
  EXPECT_EQ(data->read(2, pixels), samples[2].label);
  EXPECT_EQ(std::memcmp(pixels.data(), samples[2].bytes.data(), 30), 0);
  EXPECT_THROW(data->read(3, pixels), ArgumentError);
  EXPECT_THROW(data->read(-1, pixels), ArgumentError);
  pixels.resize(29);
  EXPECT_THROW(data->read(0, pixels), ArgumentError);
  write_all(create_raw(dir / "b.bin"), raw_samples(1, 2, 2, 1, 7));
  std::vector<std::unique_ptr<Dataset>> both;
  both.push_back(open_raw(dir / "a.bin"));
  both.push_back(open_raw(dir / "b.bin"));
  pixels.resize(30);
  EXPECT_THROW(join(std::move(both))->read(0, pixels), ArgumentError);
}

TEST(Join, IsThePartsInOrder) {
  const TempDir dir;
  const auto a = raw_samples(3, 2, 2, 1, 3), b = raw_samples(1, 2, 2, 1, 7), c = raw_samples(2, 2, 3, 1, 2);
  write_all(create_raw(dir / "a.bin"), a);
  write_all(create_raw(dir / "b.bin"), b);
  write_all(create_raw(dir / "c.bin"), c);
  const auto open = [&](std::initializer_list<const char*> names) {
    std::vector<std::unique_ptr<Dataset>> parts;
    for (const char* name : names) parts.push_back(open_raw(dir / name));
    return join(std::move(parts));
  };
  std::vector<OwnedSample> all = a;
  all.insert(all.end(), b.begin(), b.end());
  EXPECT_EQ(open({"a.bin", "b.bin"})->spec(), (ImageSpec{2, 2, 1, 7}));
  expect_same(*open({"a.bin", "b.bin"}), all);
  all.insert(all.end(), c.begin(), c.end());
  const auto three = open({"a.bin", "b.bin", "c.bin"});
  EXPECT_EQ(three->spec(), (ImageSpec{0, 0, 0, 7})) << "two sizes";
  expect_same(*three, all);
  EXPECT_TRUE(names(three->where(3), {(dir / "b.bin").string(), "0"}));
  expect_same(*open({"b.bin"}), b);
  EXPECT_TRUE(open({"b.bin"})->class_names().empty());
  EXPECT_THROW(join({}), ArgumentError);
}

TEST(Join, ForwardsWillNeedToEachPart) {
  struct Part final : Dataset {
    Part(std::int64_t count, std::vector<std::int64_t>& told) : count_(count), told_(told) {}
    std::int64_t size() const override { return count_; }
    const ImageSpec& spec() const override { return spec_; }
    StoredSample fetch(std::int64_t, std::vector<std::byte>&) const override { return {}; }
    void will_need(std::int64_t first, std::int64_t count) const override {
      told_.push_back(first);
      told_.push_back(count);
    }
    std::int64_t count_;
    std::vector<std::int64_t>& told_;
    ImageSpec spec_{2, 2, 1, 3};
  };
  std::vector<std::int64_t> a, b, c;
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(std::make_unique<Part>(5, a));
  parts.push_back(std::make_unique<Part>(3, b));
  parts.push_back(std::make_unique<Part>(4, c));
  const auto all = join(std::move(parts));
  all->will_need(2, 7);
  EXPECT_EQ(a, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(b, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(c, (std::vector<std::int64_t>{0, 1}));
  all->will_need(10, 1000);
  EXPECT_EQ(c, (std::vector<std::int64_t>{0, 1, 2, 2}));
}

TEST(Labels, AreKnownWithoutTheImages) {
  const TempDir dir;
  const auto samples = raw_samples(3, 4, 4, 3, 5);
  write_all(create_samples(dir / "a.athp", {.classes = 5}), samples);
  std::string file = read_file(dir / "a.athp");
  ++file[file.find(samples[1].bytes)];
  replace_file(dir / "a.athp", file);
  std::vector<std::unique_ptr<Dataset>> parts;
  for (int i = 0; i < 2; ++i) parts.push_back(open_samples(dir / "a.athp"));
  const auto data = join(std::move(parts));
  std::vector<std::byte> scratch;
  EXPECT_THROW((void)data->fetch(4, scratch), IoError);
  EXPECT_EQ(data->label(4), samples[1].label);
}

}  // namespace athanor::formats_test
