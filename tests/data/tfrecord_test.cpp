#include "data/formats/tfrecord.h"

#include "data/formats/crc32c.h"
#include "data/formats/example.h"
#include "tests/support/stores.h"

namespace athanor::tfrecord_test {

using namespace test;

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}
std::string masked(const std::string& bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return little_endian(static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}
std::string frame(const std::string& data) {
  const std::string length = little_endian(data.size(), 8);
  return length + masked(length) + data + masked(data);
}
/// A field of bytes, fewer than 16384.
std::string field(int number, const std::string& bytes) {
  std::string head{static_cast<char>(number << 3 | 2)};
  if (bytes.size() >= 128) head += static_cast<char>(bytes.size() | 128);
  head += static_cast<char>(bytes.size() >= 128 ? bytes.size() >> 7 : bytes.size());
  return head + bytes;
}
std::string entry(const std::string& key, const std::string& feature) {
  return field(1, field(1, key) + field(2, feature));
}
std::string bytes_feature(const std::string& value) {
  return field(1, field(1, value));
}
std::string int_feature(char value) {
  return field(3, field(1, std::string{value}));
}

FeatureMap parse(const std::string& message) {
  return read_example(std::as_bytes(std::span(message)));
}
using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;

std::vector<OwnedSample> mixed_samples() {
  std::vector<OwnedSample> samples = raw_samples(3, 5, 4, 3, 3);
  samples.push_back(encoded_sample(Codec::jpeg, 1, 7));
  samples.push_back(encoded_sample(Codec::png, 5000, 300));
  samples.push_back(raw_samples(1, 1, 1, 1, 1)[0]);
  samples.back().bytes = "\xff";
  samples.push_back({"\xff\xd8\xff", Codec::raw, 1, 1, 3, 70000});  // raw, though it begins as a JPEG does
  return samples;
}

TEST(Example, ReadsEveryKindPackedOrNot) {
  const std::string one = std::string("\0\0\x80\x3f", 4), two = std::string("\0\0\0\x40", 4);
  const std::string record =
      field(1, entry("packed floats", field(2, field(1, one + two))) +
                   entry("floats", field(2, "\x0d" + one + "\x0d" + two)) +
                   entry("packed ints", field(3, field(1, "\x01\xac\x02"))) +
                   entry("ints", field(3, std::string("\x08\x01\x08\xac\x02", 5))) +
                   entry("negative", field(3, "\x08" + std::string(9, '\xff') + "\x01")) +
                   entry("strings", field(1, field(1, "a") + field(1, "") + field(1, "bc"))) +
                   entry("empty", "") + entry("no ints", field(3, "")));
  const FeatureMap features = parse(record);  // strings lie in it
  ASSERT_EQ(features.size(), 8u);
  EXPECT_EQ(std::get<Floats>(features.at("packed floats")), (Floats{1, 2}));
  EXPECT_EQ(std::get<Floats>(features.at("floats")), (Floats{1, 2}));
  EXPECT_EQ(std::get<Ints>(features.at("packed ints")), (Ints{1, 300}));
  EXPECT_EQ(std::get<Ints>(features.at("ints")), (Ints{1, 300}));
  EXPECT_EQ(std::get<Ints>(features.at("negative")), (Ints{-1}));
  const auto& strings = std::get<1>(features.at("strings"));
  ASSERT_EQ(strings.size(), 3u);
  EXPECT_EQ(strings[1].size(), 0u);
  EXPECT_EQ(std::to_integer<char>(strings[2][1]), 'c');
  EXPECT_TRUE(std::holds_alternative<std::monostate>(features.at("empty")));
  EXPECT_TRUE(std::get<Ints>(features.at("no ints")).empty());
}

TEST(Example, SkipsUnknownFieldsAndKeepsTheLastOfAKey) {
  const std::string unknown = std::string("\x48\x05") + "\x51" + std::string(8, 'x') + "\x5d" + "abcd" +
                              field(9, "?") + "\x63\x6b\x08\x01\x6c\x64";  // groups 12 { 13 { 1: 1 } }
  const FeatureMap features =
      parse(unknown + field(1, unknown + entry("a", int_feature(1)) + entry("a", unknown + int_feature(2))) +
            field(1, entry("b", bytes_feature("x") + int_feature(3))));
  EXPECT_EQ(std::get<Ints>(features.at("a")), (Ints{2}));
  EXPECT_EQ(std::get<Ints>(features.at("b")), (Ints{3})) << "of a oneof the last counts";
  EXPECT_TRUE(parse("").empty());
}

TEST(Example, ReadsWhatItWrote) {
  const FeatureMap features{{"ints", Ints{0, -1, INT64_MIN, INT64_MAX}},
                            {"floats", Floats{0.5f, -3}},
                            {"nothing", {}},
                            {"no floats", Floats{}},
                            {"", Ints{1}}};
  const std::string bytes = write_example(features);
  const FeatureMap back = read_example(std::as_bytes(std::span(bytes)));
  ASSERT_EQ(back.size(), features.size());
  EXPECT_EQ(std::get<Ints>(back.at("ints")), std::get<Ints>(features.at("ints")));
  EXPECT_EQ(std::get<Floats>(back.at("floats")), std::get<Floats>(features.at("floats")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(back.at("nothing")));
  EXPECT_TRUE(std::get<Floats>(back.at("no floats")).empty());
  EXPECT_EQ(std::get<Ints>(back.at("")), (Ints{1}));
}

TEST(Example, MalformedMessagesAreIoErrorsWithAnOffset) {
  for (const std::string& message :
       {std::string("\x0a"), std::string("\x0a\x05\x01", 3), std::string("\x00\x01", 2), std::string("\x0c"),
        std::string("\x0e"), std::string("\x0b\x08"), std::string(11, '\xff'),
        field(1, field(1, field(2, field(2, field(1, "abc"))))),
        field(1, field(1, field(2, field(3, field(1, "\xff"))))), "\x0a" + std::string(9, '\xff') + "\x01"}) {
    const std::string error = message_of<IoError>([&] { parse(message); });
    EXPECT_TRUE(names_place(error, "example")) << error;
  }
  EXPECT_ERROR(IoError, parse(field(1, field(1, field(2, "\x0a\x05")))), "example", "8", "5");
}

TEST(TfRecord, RejectsAnImageOfAnotherCodec) {
  const TempDir dir;
  OwnedSample wrong = encoded_sample(Codec::jpeg, 10, 0);
  wrong.codec = Codec::png;
  EXPECT_THROW(create_tfrecord(dir / "a")->add(wrong.view()), ArgumentError);
}

TEST(TfRecord, ReadsHandWrittenFilesWithKeysOfTheirOwn) {
  const TempDir dir;
  const std::string jpeg = "\xff\xd8\xff\xe0!";
  write_file(dir / "a", frame(field(1, entry("image/encoded", bytes_feature(jpeg)) +
                                           entry("image/class/label", int_feature(1)))) +
                            frame(field(1, entry("image/encoded", bytes_feature(jpeg)) +
                                               entry("image/class/label", int_feature(2)))));
  expect_same(*open_tfrecord(dir / "a"), {{jpeg, Codec::jpeg, 0, 0, 0, 1}, {jpeg, Codec::jpeg, 0, 0, 0, 2}});
  write_file(dir / "a",
             frame(field(1, entry("pic", bytes_feature("abcdef")) + entry("cls", int_feature(3)) +
                                entry("height", int_feature(1)) + entry("width", int_feature(2)))));
  expect_same(*open_tfrecord(dir / "a", {.image = "pic", .label = "cls"}),
              {{"abcdef", Codec::raw, 1, 2, 3, 3}});
  EXPECT_ERROR(IoError, open_tfrecord(dir / "a"), "12", "--fields");
  write_file(dir / "a", frame(field(1, entry("image_raw", bytes_feature("abcdef")) +
                                           entry("label", int_feature(3)) + entry("height", int_feature(1)) +
                                           entry("width", int_feature(2)) + entry("depth", int_feature(3)))));
  expect_same(*open_tfrecord(dir / "a"), {{"abcdef", Codec::raw, 1, 2, 3, 3}});
}

TEST(TfRecord, ALengthThatBeginsLikeAGzipFileIsNone) {
  const TempDir dir;
  constexpr std::size_t kLength = 0x8b1f;
  const auto written = [&](const char* name, std::size_t image_bytes) {
    write_all(create_tfrecord(dir / name), {encoded_sample(Codec::jpeg, image_bytes, 3)});
    return read_file(dir / name);
  };
  const std::size_t around = written("a", 35'000).size() - 35'000;  // 16 of them are not of the record
  EXPECT_TRUE(written("b", kLength - (around - 16)).starts_with("\x1f\x8b"));
  EXPECT_EQ(open_tfrecord(dir / "b")->size(), 1);
}

TEST(TfRecord, HostileFilesAreOneLineNamingFileAndOffset) {
  const TempDir dir;
  const std::string huge = little_endian(UINT64_MAX, 8), large = little_endian(INT64_MAX - 3, 8);
  const std::string image = entry("image", bytes_feature("abc")), label = entry("label", int_feature(1));
  for (const BadFile& bad : std::vector<BadFile>{
           {"", 0, {}},
           {"\x1f\x8b and so on", 0, {"gunzip"}},
           {huge + masked(huge) + "abc", 0, {"18446744073709551615", "3"}},
           {large + masked(large) + "abc", 0, {"9223372036854775804", "3"}},
           {little_endian(0, 8) + masked(little_endian(0, 8)), 0, {"0"}},
           {frame("\x0a"), 12, {"tf.train.Example", "1"}},
           {frame(""), 12, {"image/encoded", "--fields"}},
           {frame(field(1, image)), 12, {"image/class/label", "--fields"}},
           {frame(field(1, label + entry("image", int_feature(3)))), 12, {"image"}},
           {frame(field(1, image + entry("label", bytes_feature("1")))), 12, {"label", "int64"}},
           {frame(field(1, image + label)), 12, {"0x0x0", "3"}},
           {frame(field(1, image + label + entry("height", int_feature(2)) + entry("width", int_feature(1)))),
            12,
            {"2x1x1", "3"}},
           {frame(field(1, image + label + entry("height", int_feature(1)) +
                               entry("width", field(3, field(1, std::string(9, '\xff') + "\1"))))),
            12,
            {"1x-1x0", "3"}},
       }) {
    write_file(dir / "a", bad.content);
    const std::string message = message_of<IoError>([&] { read_all(*open_tfrecord(dir / "a")); });
    expect_named(message, (dir / "a").string(), bad);
  }
}

TEST(TfRecord, NoDamageBehindARightCrcCrashes) {
  const TempDir dir;
  const std::string good =
      field(1, entry("image/encoded", bytes_feature("\xff\xd8\xff\xe0!")) +
                   entry("image/class/label", int_feature(1)) + entry("x", field(2, field(1, "abcd"))));
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(value);
      replace_file(dir / "a", frame(damaged));
      const std::string message = message_of<IoError>([&] { read_all(*open_tfrecord(dir / "a")); });
      ASSERT_TRUE(message.empty() || names_place(message, (dir / "a").string())) << message;
    }
  }
}

}  // namespace athanor::tfrecord_test
