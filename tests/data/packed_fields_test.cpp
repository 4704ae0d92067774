// Samples of several fields in packed files.
#include <algorithm>
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
#include "data/loader.h"
#include "data/recode.h"
#include "tests/support/errors.h"
#include "tests/support/field_table.h"
#include "tests/support/image_files.h"
#include "tests/support/temp_dir.h"

namespace athanor::packed_fields_test {

using test::kCount, test::mask_of, test::png_of, test::write_file, test::write_table;

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

TEST(PackedFields, RoundTrip) {
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
  int writers = 0;
  for (const char* name : {"a.npy", "images.npy", "a.npz", "a.h5", "a.tar", "a.tfrecord", "a.bin",
                           "a-images-idx3-ubyte", "folder"}) {
    std::unique_ptr<SampleWriter> writer;
    try {
      writer = create_samples(folder / name);
    } catch (const Error&) {
      continue;  // built without its library, or a name that images cannot have
    }
    ++writers;
    EXPECT_ERROR(ArgumentError, writer->add(raw), "sample 0", "2", ".athp");
    EXPECT_ERROR(ArgumentError, writer->add(photo), "sample 0", "4", ".athp");
    writer.reset();
    EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
  }
  EXPECT_GE(writers, 6);
  PackedWriter writer(folder / "a.athp");
  EXPECT_ERROR(ArgumentError, writer.add(photo), "packed file", "sample 0", "0", "4");
}

TEST(PackedFields, UnreadableOnesAreNotWritten) {
  const test::TempDir folder;
  const FieldSpec image{"image", DType::u8, {0, 0, 0}, FieldKind::picture},
      mask{"mask", DType::u8, {0, 0}, FieldKind::mask};
  const auto create = [&](const std::vector<FieldSpec>& fields) {
    (void)PackedWriter(folder / "a.athp", {.fields = fields});
  };
  EXPECT_ERROR(ArgumentError, create({mask}), "fields", "'image'");
  EXPECT_ERROR(ArgumentError, create({image, mask, mask}), "fields", "'mask'");
  EXPECT_ERROR(ArgumentError,
               create({image,
                       {"gr\xf6\xdf"
                        "e"}}),
               "fields", "UTF-8", "gr\\xf6\\xdfe");
  EXPECT_ERROR(ArgumentError, create({image, {""}}), "fields", "''");
  PackedWriter writer(folder / "a.athp", {.fields = {image, {"weight", DType::f32}}});
  std::vector<std::byte> bytes(8);
  std::vector<StoredField> more{{bytes}};
  EXPECT_ERROR(ArgumentError, writer.add({bytes, Codec::png, 0, 0, 0, 0, more}), "packed file", "'weight'",
               "sample 0", "4", "8");
  more[0] = {std::span(bytes).first(4), Codec::raw, -1};
  EXPECT_ERROR(ArgumentError, writer.add({bytes, Codec::png, 0, 0, 0, 0, more}), "packed file", "'weight'",
               "sample 0", "[0, 4294967295]", "-1x0x0");
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
  EXPECT_ERROR(ArgumentError, join(parts(FieldKind::target)), "join", "fields", "target.athp");
}

// Before they are packed, not in the middle of a training.
TEST(PackedFields, UnusableOnesAreFoundWhilePacking) {
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
  EXPECT_TRUE(test::names(said(true), {"photos/2.png", "'mask'", "46x46", "46x45"}));
  EXPECT_EQ(said(false), "");
  write_file(folder / "masks/2.png", test::jpeg_file(test::photo(46, 46, 3), {}));
  EXPECT_TRUE(test::names(said(true), {"photos/2.png", "'mask'", "jpeg", "PNG"}));
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

TEST(PackedFields, ForgedOnesAreRejected) {
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
  std::uint64_t table_at = 0, sample_at = 0;
  const auto expect_no_table = [&](std::string_view from, std::string_view to) {
    const std::string line = said([&](std::string& file, packed::Header& header) {
      const std::size_t at = file.find(from, header.names_offset());
      ASSERT_NE(at, std::string::npos);
      file.replace(at, from.size(), to);
      table_at = header.names_offset() + header.name_bytes;
    });
    EXPECT_TRUE(test::names(line, {"a.athp", std::to_string(table_at), "fields", "image"}));
  };
  expect_no_table("\"image\"", "\"imogi\"");
  expect_no_table("[{", "[[");
  expect_no_table("\"mask\",\"dtype\":\"u8\"", "\"mask\",\"dtype\":\"u9\"");
  expect_no_table("\"shape\":[0,0]", "\"shape\":[0,-]");
  expect_no_table("\"kind\":\"mask\"", "\"kind\":\"musk\"");
  const auto with = [&](const std::function<void(packed::Header&)>& change) {
    return said([&](std::string&, packed::Header& header) { change(header); });
  };
  EXPECT_TRUE(test::names(with([](auto& header) { header.version = 1; }), {"a.athp", "32"}));
  EXPECT_TRUE(test::names(with([](auto& header) { header.version = 3; }), {"a.athp", "8", "1", "2", "3"}));
  EXPECT_TRUE(test::names(with([](auto& header) { header.field_bytes = ~0ull; }), {"a.athp", "32"}));
  // The lengths of the second sample's parts, its last bytes: one too long, and one of no codec.
  for (const std::size_t back : {100u, 80u, 96u}) {
    const std::string line = said([&](std::string& file, packed::Header& header) {
      const packed::Entry entry = packed::decode_entry(
          reinterpret_cast<const std::byte*>(file.data()) + header.index_offset() + header.entry_bytes,
          header.entry_bytes, header.form);
      file[entry.offset + entry.length - back + 2] = '\x7f';
      sample_at = entry.offset;
    });
    EXPECT_TRUE(test::names(line, {"a.athp", std::to_string(sample_at), "sample 1"}));
  }
}

}  // namespace athanor::packed_fields_test
