#include "data/formats/import/lmdb.h"

#include "data/formats/crc32c.h"
#include "tensor/io/proto.h"
#include "tests/support/key_values.h"
#include "tests/support/stores.h"

namespace athanor::lmdb_test {

using namespace test;

#ifdef ATHANOR_TEST_LMDB
using Values = std::map<std::string, std::string>;

/// Caffe's Datum.
std::string datum(std::int64_t channels, std::int64_t height, std::int64_t width, const std::string& data,
                  std::int64_t label, bool encoded = false) {
  ProtoMessage message;
  message.integer(1, channels);
  message.integer(2, height);
  message.integer(3, width);
  message.bytes(4, data);
  message.integer(5, label);
  if (encoded) message.integer(7, 1);
  return message.text();
}

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

/// What older versions wrote.
std::string old_value(const OwnedSample& s) {
  std::string value = "ATH1" + number(static_cast<std::uint64_t>(s.codec), 4) +
                      number(static_cast<std::uint64_t>(s.label), 8);
  for (const std::int64_t side : {s.height, s.width, s.channels})
    value += number(static_cast<std::uint64_t>(side), 4);
  const std::string all = value + s.bytes;
  return value + number(crc32c(std::as_bytes(std::span(all))), 4) + s.bytes;
}

std::unique_ptr<Dataset> written(const TempDir& dir, const Values& values, const FieldNames& names = {}) {
  std::filesystem::remove(dir / "data.mdb");
  write_key_values(dir / "data.mdb", values);
  return open_lmdb(dir.path(), names);
}

TEST(Lmdb, ReadsDatumsChannelsFirst) {
  const TempDir dir;
  const OwnedSample png = encoded_sample(Codec::png, 3000, 2);
  // Two channels of 1 x 3 pixels: abc and def.
  const auto store = written(dir, {{"00000000_a", datum(2, 1, 3, "abcdef", 4)},
                                   {"00000001_b", datum(0, 0, 0, png.bytes, 2, true)},
                                   {"__len__", "2"}});
  EXPECT_EQ(store->spec(), (ImageSpec{0, 0, 0, 5}));
  expect_same(*store, {{"adbecf", Codec::raw, 1, 3, 2, 4}, png});
  expect_same(*open_lmdb(dir / "data.mdb"), {{"adbecf", Codec::raw, 1, 3, 2, 4}, png});
  EXPECT_EQ(written(dir, {{"a", datum(3, 2, 2, "012345678901", 0)}, {"b", datum(3, 2, 2, "012345678901", 1)}})
                ->spec(),
            (ImageSpec{2, 2, 3, 2}));
}

TEST(Lmdb, ReadsEncodedImagesAndTheLabelsOfTheirKeys) {
  const TempDir dir;
  const OwnedSample a = encoded_sample(Codec::png, 300, 7), b = encoded_sample(Codec::jpeg, 20, 0);
  const Values values{{"image-001", a.bytes},
                      {"image-002", b.bytes},
                      {"label-001", "7"},
                      {"label-002", "0"},
                      {"num-samples", "2"}};
  expect_same(*written(dir, values), {a, b});
  Values renamed;
  for (const auto& [key, value] : values)
    renamed[(key[0] == 'i' ? "photo" : key[0] == 'l' ? "class" : "num-samples") + key.substr(5)] = value;
  renamed.erase("num-samplesamples");
  expect_same(*written(dir, renamed, {.image = "photo-", .label = "class-"}), {a, b});

  const auto classes =
      written(dir, {{"dog/1.png", a.bytes}, {"cat/9.png", a.bytes}, {"dog/x/2.jpg", b.bytes}});
  EXPECT_EQ(classes->class_names(), (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(classes->size(), 3);
  EXPECT_EQ(classes->label(0), 0);
  EXPECT_EQ(classes->label(1), 1);
  EXPECT_EQ(classes->label(2), 1);
}

TEST(Lmdb, ReadsWhatOlderVersionsWrote) {
  const TempDir dir;
  const OwnedSample a{"abcdef", Codec::raw, 1, 2, 3, 4}, b = encoded_sample(Codec::jpeg, 9000, 1);
  expect_same(*written(dir, {{"1", old_value(a)}, {"2", old_value(b)}}), {a, b});
  for (const std::size_t at : {0, 4, 8, 16, 28, 33}) {
    std::string bad = old_value(a);
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_ERROR(IoError, written(dir, {{"1", bad}}), "data.mdb", "key 1");
  }
}

TEST(Lmdb, WhatIsNoSampleIsNamed) {
  const TempDir dir;
  const std::string png = encoded_sample(Codec::png, 300, 7).bytes;
  const auto refused = [&](const Values& values) {
    return message_of<IoError>([&] { (void)written(dir, values); });
  };
  EXPECT_TRUE(names(refused({{"__len__", "0"}}), {"data.mdb"}));
  EXPECT_TRUE(names(refused({{"image-1", png}}), {"data.mdb", "key image-1", "label-1"}));
  EXPECT_TRUE(names(refused({{"image-1", png}, {"label-1", "cat"}}), {"label-1", "'cat'"}));
  EXPECT_TRUE(names(refused({{"image-1", png}, {"label-1", "-1"}}), {"image-1", "-1"}));
  EXPECT_TRUE(names(refused({{"0001", png}}), {"0001", "image-", "label-", "--fields"}));
  EXPECT_TRUE(names(refused({{"cat/1", png}, {"readme", datum(1, 1, 1, "x", 0)}}), {"readme", "CLASS/NAME"}));
  EXPECT_TRUE(names(refused({{"a", "a note"}}), {"data.mdb", "key a", "Datum"}));
  EXPECT_TRUE(names(refused({{"a", datum(3, 2, 2, "short", 0)}}), {"key a", "2x2x3", "5"}));
  EXPECT_TRUE(names(refused({{"a", datum(3, -2, 2, "short", 0)}}), {"key a", "-2x2x3"}));
  EXPECT_TRUE(names(refused({{"a", datum(1, 1, 1, "x", -3)}}), {"key a", "-3"}));
  ProtoMessage floats;
  floats.number(6, 1.0f);
  EXPECT_TRUE(names(refused({{"a", floats.text()}}), {"key a", "floating-point"}));
  write_file(dir / "none" / "data.mdb", "not LMDB");
  EXPECT_ERROR(IoError, open_lmdb(dir / "none"), "data.mdb");
}

#else
TEST(Lmdb, SaysThatItNeedsLiblmdb) {
  const TempDir dir;
  EXPECT_ERROR(IoError, open_lmdb(dir / "env"), "env", "liblmdb");
}
#endif

}  // namespace athanor::lmdb_test
