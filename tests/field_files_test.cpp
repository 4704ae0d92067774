// Samples of several fields in files: decoded, packed, in tables, and behind other data sets.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "data/convert.h"
#include "data/decoded_dataset.h"
#include "data/formats/crc32c.h"
#include "data/formats/detail/packed_layout.h"
#include "data/formats/join.h"
#include "data/formats/manifest.h"
#include "data/formats/open.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "data/image/png.h"
#include "data/in_memory.h"
#include "data/loader.h"
#include "data/recode.h"
#include "support/image_files.h"
#include "support/says.h"
#include "support/temp_dir.h"

namespace athanor {
namespace {

using test::Pixels, test::write_file;

std::string png_of(const Pixels& image) {
  std::vector<std::byte> file;
  encode_png({image.bytes.data(), image.height, image.width, image.channels, image.width * image.channels},
             file);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

/// A PNG of a palette, in which class c is stored as index c, and shown in other colours.
std::string palette_png(const Pixels& classes) {
  std::vector<std::uint8_t> colours(256 * 3);
  for (std::size_t i = 0; i < colours.size(); ++i) colours[i] = static_cast<std::uint8_t>(255 - 5 * i);
  png_image file{};
  file.version = PNG_IMAGE_VERSION;
  file.height = static_cast<png_uint_32>(classes.height);
  file.width = static_cast<png_uint_32>(classes.width);
  file.format = PNG_FORMAT_RGB_COLORMAP;
  file.colormap_entries = 256;
  std::string bytes(1 << 16, '\0');
  png_alloc_size_t size = bytes.size();
  EXPECT_NE(png_image_write_to_memory(&file, bytes.data(), &size, 0, classes.bytes.data(), 0, colours.data()),
            0);
  bytes.resize(size);
  return bytes;
}

constexpr std::int64_t kCount = 7;

Pixels mask_of(std::int64_t i, std::int64_t height, std::int64_t width) {
  Pixels mask{height, width, 1, {}};
  for (std::int64_t p = 0; p < height * width; ++p)
    mask.bytes.push_back(static_cast<std::uint8_t>((p / width / 3 + p % width / 4 + i) % 200));
  return mask;
}

/// A table of photos, targets that are the same photos, masks (every other one of a palette) and numbers.
std::filesystem::path write_table(const test::TempDir& folder) {
  std::string csv = "image,clean,mask,box.0:boxes,box.1,box.2,box.3,weight,label\r\n";
  for (std::int64_t i = 0; i < kCount; ++i) {
    const Pixels photo = test::photo(40 + 3 * i, 50 - 2 * i, 3, static_cast<std::uint64_t>(i));
    const Pixels mask = mask_of(i, photo.height, photo.width);
    write_file(folder / fmt::format("photos/{}.png", i), png_of(photo));
    write_file(folder / fmt::format("masks/{}.png", i), i % 2 == 0 ? palette_png(mask) : png_of(mask));
    csv += fmt::format("photos/{0}.png,\"photos/{0}.png\",masks/{0}.png,1,2,{1},{2},{0}.5,{3}\n", i,
                       photo.width, photo.height, i % 3 == 0 ? "cat" : "\"a \"\"dog\"\"\"");
  }
  write_file(folder / "train.csv", csv);
  return folder / "train.csv";
}

TEST(Tables, OfCsvAreFilesNumbersAndClasses) {
  const test::TempDir folder;
  const auto table = open_samples(write_table(folder));
  EXPECT_EQ(format_of(folder / "train.csv"), "table of samples");
  EXPECT_EQ(table->fields(), (std::vector<FieldSpec>{{"image", DType::u8, {0, 0, 0}, FieldKind::picture},
                                                     {"clean", DType::u8, {0, 0, 0}, FieldKind::target},
                                                     {"mask", DType::u8, {0, 0}, FieldKind::mask},
                                                     {"box", DType::f32, {1, 4}, FieldKind::boxes},
                                                     {"weight", DType::f32},
                                                     {"label", DType::i64}}));
  EXPECT_EQ(table->class_names(), (std::vector<std::string>{"a \"dog\"", "cat"}));
  ASSERT_EQ(table->size(), kCount);
  std::vector<std::byte> scratch;
  const StoredSample sample = table->fetch(3, scratch);
  EXPECT_EQ(sample.label, 1);
  EXPECT_EQ(sample.codec, Codec::png);
  ASSERT_EQ(sample.more.size(), 4u);
  EXPECT_TRUE(std::ranges::equal(sample.more[0].bytes, sample.bytes));
  float numbers[4];
  std::memcpy(numbers, sample.more[2].bytes.data(), sizeof(numbers));
  EXPECT_EQ(numbers[2], 44);
  std::memcpy(numbers, sample.more[3].bytes.data(), 4);
  EXPECT_EQ(numbers[0], 3.5f);
}

// Decoded --------------------------------------------------------------------------------------------------

TEST(DecodedFields, AreThePartOfTheirImage) {
  const test::TempDir folder;
  const std::shared_ptr<Dataset> table = open_samples(write_table(folder));
  const DecodedDataset data(table, {.height = 16, .width = 24, .random_crop = RandomResizedCrop{}},
                            {.height = 16, .width = 24}, 5);
  EXPECT_EQ(data.fields()[1].shape, (Shape{16, 24, 3}));
  Loader loader(data, {.batch_size = kCount, .training = true, .workers = 2});
  for (const std::int64_t epoch : {0, 1}) {
    loader.start_epoch(epoch);
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch["image"].to_vector(), batch["clean"].to_vector()) << "the same file, cut alike";
    for (std::int64_t i = 0; i < kCount; ++i) {
      const std::int64_t height = 40 + 3 * i, width = 50 - 2 * i;
      const Pixels mask = mask_of(i, height, width);
      const Placement at = place({.height = 16, .width = 24, .random_crop = RandomResizedCrop{}},
                                 {height, width}, {5, epoch, i});
      const auto* const got = batch["mask"].data<std::uint8_t>() + i * 16 * 24;
      for (std::int64_t y = 0; y < 16; ++y) {
        for (std::int64_t x = 0; x < 24; ++x) {
          const auto row =
              static_cast<std::int64_t>(std::floor((double(y) + 0.5) * at.rows.scale + at.rows.offset));
          const auto column =
              static_cast<std::int64_t>(std::floor((double(x) + 0.5) * at.columns.scale + at.columns.offset));
          ASSERT_EQ(got[y * 24 + x], *mask.at(row, column)) << i << " " << y << " " << x;
        }
      }
      const auto* const box = batch["box"].data<float>() + 4 * i;
      const auto clipped = [](double value, double most) { return std::clamp(value, 0.0, most); };
      EXPECT_NEAR(box[0], clipped((1 - at.columns.offset) / at.columns.scale, 24), 1e-4);
      EXPECT_NEAR(box[1], clipped((2 - at.rows.offset) / at.rows.scale, 16), 1e-4);
      EXPECT_EQ(box[2], 24) << "its right side is the image's";
    }
  }
  Loader plain(data, {.batch_size = 1, .workers = 0});
  Batch first;
  ASSERT_TRUE(plain.next(first));
  EXPECT_EQ(first["weight"].item(), 0.5);
}

TEST(DecodedFields, OfAnotherSizeAreNamedWithTheirSample) {
  const test::TempDir folder;
  const auto path = write_table(folder);
  const auto said = [&] {
    const DecodedDataset data(open_samples(path), {.height = 16, .width = 24});
    Loader loader(data, {.batch_size = kCount, .workers = 0});
    Batch batch;
    return test::message_of<IoError>([&] { loader.next(batch); });
  };
  EXPECT_EQ(said(), "");
  const auto holds = [&](const std::string& what) {
    EXPECT_NE(said().find("sample 2 "), std::string::npos) << said();
    EXPECT_NE(said().find(what), std::string::npos) << said();
  };
  write_file(folder / "masks/2.png", png_of(mask_of(2, 46, 45)));
  holds("photos/2.png: field 'mask': must have the image's size, 46x46, but is 46x45");
  write_file(folder / "masks/2.png", png_of(test::photo(46, 46, 3)));
  holds(
      "field 'mask': png: a mask must be grey or have a palette, of at most 8 bits, but has 3 channels of 8");
  write_file(folder / "masks/2.png", test::jpeg_file(test::photo(46, 46, 3), {}));
  holds("field 'mask': jpeg: a mask must be a PNG or raw: JPEG changes its classes");
  write_file(folder / "masks/2.png", "rubbish");
  holds("field 'mask': ");
}

TEST(DecodedFields, NeedNoLabel) {
  const test::TempDir folder;
  for (const char* name : {"a", "b"}) {
    const Pixels photo = test::photo(30, 40, 3);
    write_file(folder / fmt::format("set/images/{}.png", name), png_of(photo));
    write_file(folder / fmt::format("set/masks/{}.png", name), png_of(mask_of(1, 30, 40)));
  }
  const DecodedDataset data(open_samples(folder / "set"), {.height = 30, .width = 40});
  Loader loader(data, {.batch_size = 2, .workers = 0});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_FALSE(batch.labels.defined());
  const std::vector<std::uint8_t> mask = mask_of(1, 30, 40).bytes;
  EXPECT_TRUE(std::equal(mask.begin(), mask.end(), batch["mask"].data<std::uint8_t>()));
}

void expect_same_rows(const Dataset& a, const Dataset& b) {
  ASSERT_EQ(a.fields(), b.fields());
  Loader of_a(a, {.batch_size = a.size(), .training = true, .workers = 0}),
      of_b(b, {.batch_size = b.size(), .training = true, .workers = 0});
  for (const std::int64_t epoch : {0, 3}) {
    of_a.start_epoch(epoch);
    of_b.start_epoch(epoch);
    Batch x, y;
    ASSERT_TRUE(of_a.next(x) && of_b.next(y));
    for (const FieldSpec& field : a.fields())
      EXPECT_EQ(x[field.name].to_vector(), y[field.name].to_vector()) << field.name << ", epoch " << epoch;
  }
}

TEST(DecodedFields, OfASubsetAreAsTrainingSeesThem) {
  const test::TempDir folder;
  const auto data = std::make_shared<DecodedDataset>(
      open_samples(write_table(folder)),
      ImageTransform{.height = 16, .width = 24, .random_crop = RandomResizedCrop{}},
      ImageTransform{.height = 16, .width = 24}, 5);
  expect_same_rows(*data, Subset(data, {0, 1, 2, 3, 4, 5, 6}));
}

// Each of them reads through memory of its own.
TEST(DecodedFields, OfDecodedSamplesAreTheirs) {
  const test::TempDir folder;
  const std::shared_ptr<const Dataset> table = open_samples(write_table(folder));
  const ImageTransform as_is{.height = 16, .width = 24};
  const auto once = std::make_shared<DecodedDataset>(table, as_is);
  expect_same_rows(*once, DecodedDataset(once, as_is));
  const auto packed = create_samples(folder / "a.athp", {.fields = once->fields()});
  EXPECT_TRUE(convert(*once, *packed, {.threads = 1}));
  packed->finish();
  expect_same_rows(*once, PackedStore(folder / "a.athp", {.access = PackedAccess::read}));
}

// Packed ---------------------------------------------------------------------------------------------------

std::filesystem::path pack(const Dataset& from, const std::filesystem::path& to, int threads = 0) {
  const auto writer = create_samples(to, {.threads = threads,
                                          .classes = from.spec().classes,
                                          .class_names = from.class_names(),
                                          .fields = from.fields()});
  EXPECT_TRUE(convert(from, *writer, {.threads = 1 + threads}));
  writer->finish();
  return to;
}

void expect_same(const Dataset& a, const Dataset& b) {
  ASSERT_EQ(a.fields(), b.fields());
  ASSERT_EQ(a.size(), b.size());
  std::vector<std::byte> of_a, of_b;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const StoredSample x = a.fetch(i, of_a), y = b.fetch(i, of_b);
    ASSERT_TRUE(x.label == y.label && x.codec == y.codec && std::ranges::equal(x.bytes, y.bytes));
    ASSERT_EQ(x.more.size(), y.more.size());
    for (std::size_t f = 0; f < x.more.size(); ++f) {
      ASSERT_TRUE(x.more[f].codec == y.more[f].codec && x.more[f].height == y.more[f].height &&
                  std::ranges::equal(x.more[f].bytes, y.more[f].bytes));
    }
  }
}

TEST(PackedFields, ComeBackAsTheyWere) {
  const test::TempDir folder;
  const auto table = open_samples(write_table(folder));
  const auto path = pack(*table, folder / "a.athp");
  for (const PackedAccess access : {PackedAccess::map, PackedAccess::read}) {
    const PackedStore store(path, {.access = access});
    expect_same(*table, store);
    EXPECT_EQ(store.class_names(), table->class_names());
    EXPECT_EQ(store.spec().classes, 2);
    EXPECT_TRUE(store.verify(2).empty());
  }
  EXPECT_EQ(PackedStore(pack(*table, folder / "b.athp", 3)).content_id(), PackedStore(path).content_id());
  expect_same(*table, *open_samples(pack(*open_samples(path), folder / "c.athp.json")));
  const DecodedDataset a(std::shared_ptr(open_samples(path)), {.height = 16, .width = 16});
  Loader loader(a, {.batch_size = kCount, .workers = 0});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch["mask"].shape(), (Shape{kCount, 16, 16}));
}

TEST(PackedFields, OtherFormatsSayThatTheyHoldNone) {
  const test::TempDir folder;
  const auto table = open_samples(write_table(folder));
  std::vector<std::byte> pixels(12), scratch;
  std::vector<StoredField> more{{pixels}, {pixels}};
  const StoredSample raw{pixels, Codec::raw, 2, 2, 3, 0, more}, photo = table->fetch(0, scratch);
  for (const char* name : {"a.npy", "images.npy", "a.npz", "a.h5", "a.tar", "a.tfrecord", "a.lmdb", "a.bin",
                           "a-images-idx3-ubyte", "folder"}) {
    std::unique_ptr<SampleWriter> writer;
    try {
      writer = create_samples(folder / name);
    } catch (const Error&) {
      continue;  // built without its library, or a name that images cannot have
    }
    EXPECT_SAYS(writer->add(raw),
                "must have image and label alone, but has 2 more fields; a packed file (.athp) holds them");
    EXPECT_SAYS(writer->add(photo),
                "must have image and label alone, but has 4 more fields; a packed file (.athp) holds them");
    writer.reset();
    EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
  }
  PackedWriter writer(folder / "a.athp");
  EXPECT_SAYS(writer.add(photo),
              "packed file: sample 0 must have 0 fields beside image and label, but has 4");
}

TEST(PackedFields, ThatCouldNotBeReadAreNotWritten) {
  const test::TempDir folder;
  const FieldSpec image{"image", DType::u8, {0, 0, 0}, FieldKind::picture},
      mask{"mask", DType::u8, {0, 0}, FieldKind::mask};
  const auto create = [&](const std::vector<FieldSpec>& fields) {
    (void)PackedWriter(folder / "a.athp", {.fields = fields});
  };
  EXPECT_SAYS(create({mask}), "fields: samples must have an 'image'");
  EXPECT_SAYS(create({image, mask, mask}),
              "fields: each must have a name of its own, but 'mask' is there twice");
  EXPECT_SAYS(create({image,
                      {"gr\xf6\xdf"
                       "e"}}),
              "fields: a name must be UTF-8 without control characters, but is 'gr\\xf6\\xdfe'");
  EXPECT_SAYS(create({image, {""}}), "fields: each must have a name");
  PackedWriter writer(folder / "a.athp", {.fields = {image, {"weight", DType::f32}}});
  std::vector<std::byte> bytes(8);
  std::vector<StoredField> more{{bytes}};
  EXPECT_SAYS(writer.add({bytes, Codec::png, 0, 0, 0, 0, more}),
              "packed file: 'weight' of sample 0 must have 4 bytes, but has 8");
  more[0] = {std::span(bytes).first(4), Codec::raw, -1};
  EXPECT_SAYS(writer.add({bytes, Codec::png, 0, 0, 0, 0, more}),
              "packed file: height, width and channels of 'weight' of sample 0 must be in [0, 4294967295], "
              "but are -1x0x0");
}

TEST(PackedFields, OfTheSameNamesMustBeOfTheSameKinds) {
  const test::TempDir folder;
  std::vector<std::byte> bytes(12);
  const std::vector<StoredField> more{{bytes}};
  const auto parts = [&](FieldKind kind) {
    std::vector<std::unique_ptr<Dataset>> all;
    for (const FieldKind of : {FieldKind::values, kind}) {
      const auto path = folder / fmt::format("{}.athp", name_of(of));
      PackedWriter writer(path, {.fields = {{"image", DType::u8, {2, 2, 3}, FieldKind::picture},
                                            {"x", DType::u8, {2, 2, 3}, of}}});
      writer.add({bytes, Codec::raw, 2, 2, 3, 0, more});
      writer.finish();
      all.push_back(open_samples(path));
    }
    return all;
  };
  EXPECT_EQ(join(parts(FieldKind::values))->size(), 2);
  EXPECT_SAYS(join(parts(FieldKind::target)),
              "join: all stores must have the same fields, but store 1 has others");
}

// Before they are packed, not in the middle of a training.
TEST(PackedFields, ThatNobodyCouldTrainOnAreFoundByPacking) {
  const test::TempDir folder;
  const auto path = write_table(folder);
  const auto said = [&](bool check) {
    const auto table = open_samples(path);
    const auto writer = create_samples(folder / "a.athp", {.fields = table->fields()});
    const RecodeOptions recode{.check = check, .fields = table->fields()};
    return test::message_of<IoError>([&] {
      convert(*table, *writer, {.threads = 1, .make_change = [&] { return make_recoder(recode); }});
    });
  };
  EXPECT_EQ(said(true), "");
  write_file(folder / "masks/2.png", png_of(mask_of(2, 46, 45)));
  EXPECT_NE(said(true).find("photos/2.png: field 'mask': must have the image's size, 46x46, but is 46x45"),
            std::string::npos)
      << said(true);
  EXPECT_EQ(said(false), "");
  write_file(folder / "masks/2.png", test::jpeg_file(test::photo(46, 46, 3), {}));
  EXPECT_NE(said(true).find("field 'mask': jpeg: a mask must be a PNG or raw"), std::string::npos)
      << said(true);
}

// A limit of bytes is one of all fields.
TEST(PackedFields, CountInTheSizesOfFilesAndInProgress) {
  const test::TempDir folder;
  const auto table = open_samples(write_table(folder));
  std::vector<std::byte> scratch;
  std::int64_t all = 0, told = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const StoredSample sample = table->fetch(i, scratch);
    all += std::ssize(sample.bytes);
    for (const StoredField& field : sample.more) all += std::ssize(field.bytes);
  }
  const auto writer =
      create_samples(folder / "a.athp.json", {.file_bytes = all - 1, .fields = table->fields()});
  EXPECT_TRUE(convert(*table, *writer, {.threads = 1, .progress = [&](std::int64_t, std::int64_t bytes) {
                                          told = bytes;
                                          return true;
                                        }}));
  writer->finish();
  EXPECT_EQ(told, all);
  EXPECT_EQ(manifest_files(folder / "a.athp.json").size(), 2u);
}

TEST(PackedFields, OfImageAndLabelAloneAreVersionOne) {
  const test::TempDir folder;
  std::vector<std::byte> pixels(12, std::byte{3});
  std::string files[2];
  for (int i = 0; i < 2; ++i) {
    PackedWriterOptions options;
    if (i == 1) options.fields = {{"image", DType::u8, {2, 2, 3}, FieldKind::picture}, {"label", DType::i64}};
    PackedWriter writer(folder / "a.athp", options);
    writer.add({pixels, Codec::raw, 2, 2, 3, 1});
    writer.finish();
    std::ifstream in(folder / "a.athp", std::ios::binary);
    files[i] = {std::istreambuf_iterator<char>(in), {}};
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[0][8], 1);
}

// Else they would come back as samples of a class.
TEST(PackedFields, OfAnImageAloneHaveNoLabel) {
  const test::TempDir folder;
  std::vector<std::byte> pixels(12, std::byte{3}), scratch;
  const std::vector<FieldSpec> fields{{"image", DType::u8, {2, 2, 3}, FieldKind::picture}};
  PackedWriter writer(folder / "a.athp", {.fields = fields});
  writer.add({pixels, Codec::raw, 2, 2, 3, 0});
  writer.finish();
  const PackedStore store(folder / "a.athp");
  EXPECT_EQ(store.fields(), fields);
  EXPECT_EQ(store.spec(), (ImageSpec{2, 2, 3, 0}));
  EXPECT_TRUE(std::ranges::equal(store.fetch(0, scratch).bytes, pixels));
  EXPECT_TRUE(store.verify().empty());
}

/// A packed file of which some bytes are others, and every CRC fits.
void forge(const std::filesystem::path& path,
           const std::function<void(std::string& file, packed::Header& header)>& change) {
  std::ifstream in(path, std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_writable_bytes(std::span(file));
  packed::Header header = packed::decode_header(bytes.first<packed::kHeaderBytes>());
  change(file, header);
  const packed::HeaderBytes head = encode(header);
  std::ranges::copy(head, bytes.begin());
  const auto end = bytes.last<packed::kFooterBytes>();
  packed::Footer footer = packed::decode_footer(end);
  const auto crc = [&](std::uint64_t from, std::uint64_t to) {
    return crc32c(bytes.subspan(from, to - from));
  };
  footer.header_crc = crc32c(head);
  footer.names_crc = crc(header.names_offset(), header.page_crcs_offset());
  std::ranges::copy(encode(footer), end.begin());
  std::ofstream(path, std::ios::binary) << file;
}

TEST(PackedFields, ThatAreForgedAreRefused) {
  const test::TempDir folder;
  const auto table = open_samples(write_table(folder));
  const auto said = [&](const std::function<void(std::string&, packed::Header&)>& change) {
    const auto path = pack(*table, folder / "a.athp");
    forge(path, change);
    return test::message_of<IoError>([&] {
      const PackedStore store(path, {.check = false});
      std::vector<std::byte> scratch;
      for (std::int64_t i = 0; i < store.size(); ++i) (void)store.fetch(i, scratch);
    });
  };
  EXPECT_EQ(said([](std::string&, packed::Header&) {}), "");
  const auto in_table = [&](std::string_view from, std::string_view to) {
    return said([&](std::string& file, packed::Header& header) {
      const std::size_t at = file.find(from, header.names_offset());
      ASSERT_NE(at, std::string::npos);
      file.replace(at, from.size(), to);
    });
  };
  const auto expect_no_table = [](const std::string& line) {
    EXPECT_NE(line.find("must be a table of fields, with an image, but is none"), std::string::npos) << line;
  };
  expect_no_table(in_table("\"image\"", "\"imogi\""));
  expect_no_table(in_table("[{", "[["));
  expect_no_table(in_table("\"mask\",\"dtype\":\"u8\"", "\"mask\",\"dtype\":\"u9\""));
  expect_no_table(in_table("\"shape\":[0,0]", "\"shape\":[0,-]"));
  expect_no_table(in_table("\"kind\":\"mask\"", "\"kind\":\"musk\""));
  EXPECT_NE(said([](std::string&, packed::Header& header) { header.version = 1; }).find("contradict"),
            std::string::npos);
  EXPECT_NE(said([](std::string&, packed::Header& header) {
              header.version = 3;
            }).find("version 1 or 2, but is of 3"),
            std::string::npos);
  EXPECT_NE(said([](std::string&, packed::Header& header) { header.field_bytes = ~0ull; }).find("contradict"),
            std::string::npos);
  // The lengths of the second sample's parts, its last bytes: one too long, and one of no codec.
  for (const std::size_t back : {100u, 80u, 96u}) {
    const std::string line = said([&](std::string& file, packed::Header& header) {
      const packed::Entry entry = packed::decode_entry(
          reinterpret_cast<const std::byte*>(file.data()) + header.index_offset() + header.entry_bytes,
          header.entry_bytes, header.form);
      file[entry.offset + entry.length - back + 2] = '\x7f';
    });
    EXPECT_NE(line.find("sample 1 must be divided into its fields, but its bytes are not"), std::string::npos)
        << line;
  }
}

}  // namespace
}  // namespace athanor
