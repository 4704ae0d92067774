#include "data/formats/packed.h"

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/formats/crc32c.h"
#include "data/formats/detail/packed_layout.h"
#include "data/formats/packed_writer.h"
#include "support/samples.h"
#include "support/temp_dir.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using test::encoded_sample, test::OwnedSample, test::raw_sample, test::read_file, test::TempDir,
    test::write_file;
using Samples = std::vector<OwnedSample>;

PackedWriterOptions small_pages(int threads = 0) {
  PackedWriterOptions options;
  options.page_bytes = 4096;
  options.threads = threads;
  return options;
}

std::string write(const std::filesystem::path& path, const Samples& samples,
                  const PackedWriterOptions& options = small_pages()) {
  PackedWriter writer(path, options);
  for (const OwnedSample& sample : samples) writer.add(sample.view());
  writer.finish();
  EXPECT_EQ(writer.file_bytes(), std::ssize(read_file(path)));
  return writer.content_id();
}

Samples uniform(int count) {
  Samples samples;
  for (int i = 0; i < count; ++i)
    samples.push_back(raw_sample(8, 9, 3, i % 10, static_cast<std::uint64_t>(i)));
  return samples;
}

/// Every codec, sizes from nothing to several pages of 4 KiB, and page-sized ones.
Samples mixed() {
  return {encoded_sample(100, 3, 1),    raw_sample(20, 10, 3, 0, 2), encoded_sample(4096, 1, 3),
          encoded_sample(0, 2, 4),      encoded_sample(0, 2, 5),     encoded_sample(10'000, 4, 6, Codec::png),
          encoded_sample(64, 0, 7),     encoded_sample(4097, 1, 8),  encoded_sample(1, 1, 9),
          raw_sample(64, 64, 3, 2, 10), encoded_sample(4000, 0, 11), encoded_sample(97, 0, 12)};
}

void expect_same(const StoredSample& got, const OwnedSample& expected, std::int64_t i) {
  EXPECT_TRUE(std::ranges::equal(got.bytes, expected.bytes)) << "sample " << i;
  EXPECT_EQ(got.codec, expected.codec) << "sample " << i;
  EXPECT_EQ(got.label, expected.label) << "sample " << i;
  EXPECT_EQ(std::vector({got.height, got.width, got.channels}),
            std::vector({expected.height, expected.width, expected.channels}))
      << "sample " << i;
}

void expect_holds(const PackedStore& store, const Samples& samples) {
  ASSERT_EQ(store.size(), std::ssize(samples));
  std::vector<std::byte> scratch;
  for (std::int64_t i = store.size() - 1; i >= 0; --i) {
    expect_same(store.fetch(i, scratch), samples[static_cast<std::size_t>(i)], i);
  }
  EXPECT_TRUE(store.verify(2).empty());
}

/// What reading throws, or "no error".
template <class F> std::string io_error(F&& read) {
  try {
    read();
  } catch (const IoError& error) {
    EXPECT_EQ(std::count_if(error.what(), error.what() + std::strlen(error.what()),
                            [](char c) { return c == '\n'; }),
              0);
    return error.what();
  }
  return "no error";
}

template <class F> void expect_argument_error(const std::string& wanted, F&& call) {
  try {
    call();
    ADD_FAILURE() << "no error, but wanted: " << wanted;
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos)
        << error.what() << "\n  not: " << wanted;
  }
}

TEST(Packed, RoundTripsWhateverTheSizesAndHoweverItIsRead) {
  const TempDir dir;
  for (const Samples& samples :
       {Samples{}, Samples{encoded_sample(0, 0, 1)}, uniform(1), uniform(100), mixed(),
        Samples{encoded_sample(50'000, 7, 1)}, Samples{encoded_sample(5, 0, 1)}}) {
    write(dir / "a.athp", samples);
    for (const PackedAccess access : {PackedAccess::automatic, PackedAccess::map, PackedAccess::read}) {
      for (const bool check : {true, false}) {
        expect_holds(PackedStore(dir / "a.athp", {check, access}), samples);
      }
    }
  }
}

TEST(Packed, SpecAndClassesAreOfWhatWasWritten) {
  const TempDir dir;
  write(dir / "raw.athp", uniform(30));
  EXPECT_EQ(PackedStore(dir / "raw.athp").spec(), (ImageSpec{8, 9, 3, 10}));
  write(dir / "mixed.athp", mixed());
  EXPECT_EQ(PackedStore(dir / "mixed.athp").spec(), (ImageSpec{0, 0, 0, 5}));
  EXPECT_TRUE(PackedStore(dir / "mixed.athp").class_names().empty());
  PackedWriterOptions options = small_pages();
  options.class_names = {"cat", "", "dog\nnamed\"x\"", std::string(5000, 'x'), "five"};
  write(dir / "named.athp", mixed(), options);
  EXPECT_EQ(PackedStore(dir / "named.athp").class_names(), options.class_names);
  options.class_names.clear();
  options.classes = 1000;
  write(dir / "counted.athp", uniform(3), options);
  EXPECT_EQ(PackedStore(dir / "counted.athp").spec().classes, 1000);
}

TEST(Packed, BytesDoNotDependOnThreads) {
  const TempDir dir;
  Samples samples = mixed();
  for (int i = 0; i < 300; ++i)
    samples.push_back(
        encoded_sample(static_cast<std::size_t>(i * 37 % 5000), i % 7, 100u + static_cast<unsigned>(i)));
  const std::string id = write(dir / "0.athp", samples);
  const std::string expected = read_file(dir / "0.athp");
  for (const int threads : {1, 2, 7}) {
    EXPECT_EQ(write(dir / "n.athp", samples, small_pages(threads)), id);
    EXPECT_EQ(read_file(dir / "n.athp"), expected) << threads << " threads";
  }
  // And on everything else they do.
  std::swap(samples[0], samples[1]);
  EXPECT_NE(write(dir / "n.athp", samples), id);
}

TEST(Packed, SamplesAreAlignedAndStraddleNoPage) {
  const TempDir dir;
  write(dir / "a.athp", mixed());
  const PackedStore store(dir / "a.athp");
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const std::int64_t in_page = (store.offset(i) - 4096) % 4096;
    EXPECT_EQ(store.offset(i) % 64, 0) << i;
    EXPECT_TRUE(in_page + store.length(i) <= 4096 || in_page == 0) << i;
    EXPECT_EQ(store.where(i), (dir / "a.athp").string() + ", offset " + std::to_string(store.offset(i)));
  }
}

// The table of docs/packed_file.md, number by number.
TEST(Packed, BytesAreThoseOfTheDocumentedLayout) {
  const TempDir dir;
  PackedWriterOptions options = small_pages();
  options.class_names = {"a", "bc"};
  write(dir / "a.athp", {raw_sample(2, 3, 1, 1, 7), raw_sample(2, 3, 1, 0, 8)}, options);
  const std::string file = read_file(dir / "a.athp");
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(file[at + i]);
    return value;
  };
  const auto crc = [&](std::size_t at, std::size_t count) {
    return crc32c(std::as_bytes(std::span(file).subspan(at, count)));
  };
  ASSERT_EQ(file.size(), 4096u + 128 + 48 + 11 + 4 + 64);
  EXPECT_EQ(file.substr(0, 8),
            "\x93"
            "ATHP\r\n\x1a");
  EXPECT_EQ(number(8, 4), 1u);            // version
  EXPECT_EQ(number(12, 4), 0x01020304u);  // byte order
  EXPECT_EQ(number(32, 8), 2u);           // samples
  EXPECT_EQ(number(40, 8), 4096u);        // page bytes
  EXPECT_EQ(number(48, 8), 128u);         // data bytes
  EXPECT_EQ(number(56, 8), 1u);           // pages
  EXPECT_EQ(number(64, 8), 2u);           // classes
  EXPECT_EQ(number(72, 4), 24u);          // bytes of an index entry
  EXPECT_EQ(number(76, 4), 0u);           // codec: raw
  EXPECT_EQ(number(80, 4), 2u);           // height, width, channels
  EXPECT_EQ(number(84, 4), 3u);
  EXPECT_EQ(number(88, 4), 1u);
  EXPECT_EQ(number(96, 8), 11u);  // bytes of the class names
  EXPECT_EQ(file.substr(104, 4092 - 104), std::string(4092 - 104, '\0'));
  EXPECT_EQ(number(4092, 4), crc(0, 4092));
  EXPECT_EQ(std::memcmp(&file[4096], test::noise(6, 7).data(), 6), 0);
  EXPECT_EQ(std::memcmp(&file[4160], test::noise(6, 8).data(), 6), 0);
  EXPECT_EQ(file.substr(4102, 58), std::string(58, '\0'));
  EXPECT_EQ(number(4224, 8), 4096u);  // index: offset, length, CRC, label
  EXPECT_EQ(number(4232, 4), 6u);
  EXPECT_EQ(number(4236, 4), crc(4096, 6));
  EXPECT_EQ(number(4240, 8), 1u);
  EXPECT_EQ(number(4248, 8), 4160u);
  EXPECT_EQ(file.substr(4272, 11), std::string("\1\0\0\0a\2\0\0\0bc", 11));
  EXPECT_EQ(number(4283, 4), crc(4096, 128));  // page 0
  EXPECT_EQ(file.substr(4287, 8),
            "\x93"
            "ATHEND\n");
  EXPECT_EQ(number(4295, 8), 4224u);  // index, names, page CRCs, end
  EXPECT_EQ(number(4303, 8), 4272u);
  EXPECT_EQ(number(4311, 8), 4283u);
  EXPECT_EQ(number(4319, 8), 4351u);
  EXPECT_EQ(number(4327, 4), crc(0, 4096));
  EXPECT_EQ(number(4331, 4), crc(4224, 48));
  EXPECT_EQ(number(4335, 4), crc(4272, 11));
  EXPECT_EQ(number(4339, 4), crc(4283, 4));
  EXPECT_EQ(number(4343, 4), 0u);
  EXPECT_EQ(number(4347, 4), crc(4287, 60));
}

/// N of the first "offset N" in a message.
std::int64_t offset_in(const std::string& message) {
  const auto at = message.find("offset ");
  return at == std::string::npos ? -1 : std::stoll(message.substr(at + 7));
}

TEST(Packed, EveryFlippedByteIsFoundAndNamed) {
  const TempDir dir;
  const Samples samples = mixed();
  PackedWriterOptions options = small_pages();
  options.class_names = {"a", "b", "c", "d", "e"};
  write(dir / "a.athp", samples, options);
  const std::string file = read_file(dir / "a.athp");
  write_file(dir / "b.athp", file);
  std::fstream flip(dir / "b.athp", std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, char value) {
    flip.seekp(static_cast<std::streamoff>(at)).put(value).flush();
  };
  const PackedStore whole(dir / "a.athp");
  const std::int64_t index = 4096 + whole.data_bytes();
  std::uint64_t random = 1;
  const auto draw = [&](std::uint64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>((random >> 33) % below);
  };
  int in_samples = 0, in_padding = 0, elsewhere = 0;
  std::vector<std::byte> scratch;
  for (int trial = 0; trial < 10'000; ++trial) {
    // A third each: the data, what follows it, the header.
    const std::size_t at = trial % 3 == 0   ? 4096 + draw(static_cast<std::uint64_t>(whole.data_bytes()))
                           : trial % 3 == 1 ? static_cast<std::size_t>(index) +
                                                  draw(file.size() - static_cast<std::size_t>(index))
                                            : draw(4096);
    put(at, static_cast<char>(file[at] ^ static_cast<char>(1 + draw(255))));
    const auto flipped = static_cast<std::int64_t>(at);
    if (flipped < 4096 || flipped >= index) {
      ++elsewhere;
      const std::string message = io_error([&] { PackedStore store(dir / "b.athp"); });
      ASSERT_NE(message, "no error") << "byte " << at;
      ASSERT_NE(message.find("b.athp"), std::string::npos) << message;
      ASSERT_EQ(flipped < 4096, offset_in(message) < 4096) << "byte " << at << ": " << message;
      ASSERT_LE(offset_in(message), flipped) << message;
      put(at, file[at]);
      continue;
    }
    const PackedStore store(dir / "b.athp", {true, trial % 2 == 0 ? PackedAccess::map : PackedAccess::read});
    const std::vector<Damage> found = store.verify(1);
    ASSERT_EQ(found.size(), 1u) << "byte " << at;
    ASSERT_LE(found[0].offset, flipped);
    ASSERT_GT(found[0].offset + found[0].length, flipped);
    (found[0].sample >= 0 ? in_samples : in_padding)++;
    if (found[0].sample < 0) {
      ASSERT_EQ(found[0].offset, flipped);
    }
    for (std::int64_t i = 0; i < store.size(); ++i) {
      const std::string message = io_error([&] { (void)store.fetch(i, scratch); });
      if (i == found[0].sample) {
        ASSERT_NE(message.find("sample " + std::to_string(i)), std::string::npos) << message;
        ASSERT_EQ(offset_in(message), store.offset(i)) << message;
      } else {
        ASSERT_EQ(message, "no error");
      }
    }
    put(at, file[at]);
  }
  EXPECT_GT(in_samples, 500);
  EXPECT_GT(in_padding, 50);
  EXPECT_GT(elsewhere, 6000);
}

TEST(Packed, VerifyNamesEveryDamagedSample) {
  const TempDir dir;
  write(dir / "a.athp", mixed());
  std::string file = read_file(dir / "a.athp");
  const PackedStore whole(dir / "a.athp");
  for (const std::int64_t i : {0, 5, 7, 9, 11}) {  // 5, 7 and 9 span pages
    file[static_cast<std::size_t>(whole.offset(i) + whole.length(i) - 1)] ^= 1;
  }
  write_file(dir / "b.athp", file);
  for (const int threads : {1, 3}) {
    std::vector<std::int64_t> samples, offsets;
    for (const Damage& damage : PackedStore(dir / "b.athp").verify(threads)) {
      samples.push_back(damage.sample);
      offsets.push_back(damage.offset);
    }
    EXPECT_EQ(samples, (std::vector<std::int64_t>{0, 5, 7, 9, 11}));
    EXPECT_EQ(offsets[1], whole.offset(5));
  }
}

TEST(Packed, VerifySaysHowFarItIsAndCanBeStopped) {
  const TempDir dir;
  write(dir / "a.athp", mixed());
  const PackedStore store(dir / "a.athp");
  std::vector<std::int64_t> seen;
  store.verify(2, [&](std::int64_t done) {
    seen.push_back(done);
    return true;
  });
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), store.data_bytes());
  int calls = 0;
  store.verify(1, [&](std::int64_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
}

TEST(Packed, AFileCutAtAnyLengthIsRefused) {
  const TempDir dir;
  write(dir / "a.athp", uniform(3));
  const std::string file = read_file(dir / "a.athp");
  write_file(dir / "b.athp", file);
  for (std::size_t length = file.size(); length-- > 0;) {
    std::filesystem::resize_file(dir / "b.athp", length);
    const std::string message = io_error([&] { PackedStore store(dir / "b.athp"); });
    ASSERT_NE(message.find("b.athp, offset"), std::string::npos) << length << ": " << message;
  }
  write_file(dir / "b.athp", file + '\0');
  EXPECT_NE(io_error([&] { PackedStore store(dir / "b.athp"); }).find("followed by something else"),
            std::string::npos);
}

TEST(Packed, AFileCutWhileItIsOpenIsAnError) {
  const TempDir dir;
  const Samples samples = uniform(100);
  for (const PackedAccess access : {PackedAccess::map, PackedAccess::read}) {
    write(dir / "a.athp", samples);
    const PackedStore store(dir / "a.athp", {true, access});
    std::vector<std::byte> scratch;
    expect_same(store.fetch(99, scratch), samples[99], 99);
    std::filesystem::resize_file(dir / "a.athp", 5000);
    const std::string message = io_error([&] { (void)store.fetch(99, scratch); });
    EXPECT_NE(message.find("a.athp"), std::string::npos) << message;
    if (access == PackedAccess::read) {
      EXPECT_NE(message.find("more bytes, but the file ends"), std::string::npos) << message;
    }
    EXPECT_NE(io_error([&] { (void)store.verify(2); }), "no error");
  }
}

TEST(Packed, ANewFileUnderTheNameLeavesOpenOnesAlone) {
  const TempDir dir;
  write(dir / "a.athp", uniform(100));
  const PackedStore old(dir / "a.athp", {true, PackedAccess::map});
  write(dir / "a.athp", mixed());
  expect_holds(old, uniform(100));
  expect_holds(PackedStore(dir / "a.athp"), mixed());
}

/// A header that says something else, with CRCs that fit.
std::string with_header(std::string file, const std::function<void(packed::Header&)>& change) {
  auto* const first = reinterpret_cast<std::byte*>(file.data());
  packed::Header header =
      packed::decode_header(std::span<const std::byte, packed::kHeaderBytes>(first, 4096));
  change(header);
  std::ranges::copy(packed::encode(header), first);
  std::byte* const end = first + file.size() - packed::kFooterBytes;
  packed::Footer footer = packed::decode_footer(std::span<const std::byte, packed::kFooterBytes>(end, 64));
  footer.header_crc = crc32c(std::span(first, 4096));
  std::ranges::copy(packed::encode(footer), end);
  return file;
}

TEST(Packed, NumbersThatContradictTheFileAreRefused) {
  const TempDir dir;
  write(dir / "a.athp", uniform(3));
  const std::string file = read_file(dir / "a.athp");
  using Change = std::function<void(packed::Header&)>;
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62, kMax = ~std::uint64_t{0};
  const std::vector<std::pair<const char*, Change>> cases{
      {"version 1 or 2", [](auto& h) { h.version = 3; }},
      {"numbers", [](auto& h) { h.version = 2; }},
      {"numbers", [](auto& h) { h.field_bytes = 8; }},
      {"version 1", [](auto& h) { h.byte_order = 0x04030201; }},
      {"numbers", [](auto& h) { h.samples = kHuge; }},
      {"numbers", [](auto& h) { h.samples = kMax / 24 + 2; }},
      {"numbers", [](auto& h) { h.data_bytes = kMax - 4095; }},
      {"numbers", [](auto& h) { h.data_bytes += 1; }},
      {"numbers", [](auto& h) { h.name_bytes = kMax; }},
      {"numbers",
       [](auto& h) {
         h.version = 2;
         h.field_bytes = kMax;
       }},
      {"numbers", [](auto& h) { h.pages += 1; }},
      {"numbers", [](auto& h) { h.page_bytes = 0; }},
      {"numbers", [](auto& h) { h.page_bytes = 5000; }},
      {"numbers", [](auto& h) { h.page_bytes = kHuge; }},
      {"numbers", [](auto& h) { h.entry_bytes = 0; }},
      {"numbers", [](auto& h) { h.entry_bytes = 41; }},
      {"numbers", [](auto& h) { h.classes = kMax; }},
      {"numbers", [](auto& h) { h.form.codec = 7; }},
      {"numbers", [](auto& h) { h.form.codec = packed::kVaries; }},
      {"cut short", [](auto& h) { h.samples += 1; }},
      {"followed", [](auto& h) { h.samples -= 1; }},
      {"same offsets", [](auto& h) { h.samples -= 1, h.name_bytes += 24; }},
      {"label below 1", [](auto& h) { h.classes = 1; }},
      {"sample 0", [](auto& h) { h.form.height = 7; }},
      {"sample 0", [](auto& h) { h.form.height = 0; }},
      {"sample 0",
       [](auto& h) {
         h.form = {0, 0xffffffff, 0xffffffff, 0xffffffff};
       }},
  };
  for (const auto& [wanted, change] : cases) {
    write_file(dir / "b.athp", with_header(file, change));
    const std::string message = io_error([&] { PackedStore store(dir / "b.athp"); });
    EXPECT_NE(message.find(wanted), std::string::npos) << message << "\n  not: " << wanted;
  }
  write_file(dir / "b.athp", with_header(file, [](auto& h) { h.content_id = {}; }));
  const std::vector<Damage> found = PackedStore(dir / "b.athp").verify();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].what.find("content id"), std::string::npos);
}

TEST(Packed, WhatIsNoPackedFileIsRefused) {
  const TempDir dir;
  for (const std::string& content : {std::string(),
                                     std::string("\x93"
                                                 "ATHP"),
                                     std::string(10'000, 'x')}) {
    write_file(dir / "b.athp", content);
    EXPECT_NE(io_error([&] { PackedStore store(dir / "b.athp"); }).find("must be a packed file"),
              std::string::npos);
  }
  EXPECT_NE(io_error([&] { PackedStore store(dir / "absent.athp"); }).find("absent.athp"), std::string::npos);
  EXPECT_NE(io_error([&] { PackedStore store(dir.path()); }), "no error");
}

TEST(Packed, TheWriterRefusesWhatItCannotHold) {
  const TempDir dir;
  const auto add = [&](const OwnedSample& sample, PackedWriterOptions options = small_pages()) {
    PackedWriter writer(dir / "a.athp", std::move(options));
    writer.add(raw_sample(1, 1, 1, 0, 1).view());
    writer.add(sample.view());
  };
  expect_argument_error("label of sample 1", [&] { add(encoded_sample(3, -1, 1)); });
  expect_argument_error("label of sample 1", [&] { add(encoded_sample(3, std::int64_t{1} << 31, 1)); });
  PackedWriterOptions two = small_pages();
  two.classes = 2;
  expect_argument_error("[0, 2)", [&] { add(encoded_sample(3, 2, 1), two); });
  expect_argument_error("height x width x channels", [&] {
    add({test::noise(5, 1), Codec::raw, 2, 3, 1, 0});
  });
  expect_argument_error("height x width x channels", [&] { add({{}, Codec::raw, 0, 3, 1, 0}); });
  const std::int64_t huge = 4294967295;
  expect_argument_error("height x width x channels", [&] {
    add({test::noise(1, 1), Codec::raw, huge, huge, huge, 0});
  });
  expect_argument_error("must be in [0, 4294967295]", [&] {
    add({test::noise(1, 1), Codec::jpeg, -1, 1, 1, 0});
  });
  const auto open = [&](const std::function<void(PackedWriterOptions&)>& change) {
    PackedWriterOptions options = small_pages();
    change(options);
    PackedWriter writer(dir / "a.athp", options);
  };
  expect_argument_error("power of two", [&] { open([](auto& o) { o.page_bytes = 5000; }); });
  expect_argument_error("power of two", [&] { open([](auto& o) { o.page_bytes = -4096; }); });
  expect_argument_error("threads", [&] { open([](auto& o) { o.threads = -1; }); });
  expect_argument_error("classes", [&] { open([](auto& o) { o.classes = -1; }); });
  expect_argument_error("class names", [&] {
    open([](auto& o) {
      o.classes = 3;
      o.class_names = {"a"};
    });
  });
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "writers that never finished left a file";
}

TEST(Packed, NothingStaysWithoutFinish) {
  const TempDir dir;
  write_file(dir / "a.athp", "before");
  for (const int threads : {0, 3}) {
    PackedWriter writer(dir / "a.athp", small_pages(threads));
    for (const OwnedSample& sample : mixed()) writer.add(sample.view());
  }
  EXPECT_EQ(read_file(dir / "a.athp"), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_NE(io_error([&] { PackedWriter writer(dir / "absent" / "a.athp"); }).find("absent"),
            std::string::npos);
}

TEST(Packed, AFullDiskIsAnErrorThatStays) {
  const TempDir dir;
  const Samples samples = uniform(400);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  for (const int threads : {0, 1, 3}) {
    PackedWriter writer(dir / "a.athp", small_pages(threads));
    const rlimit small{20'000, limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = io_error([&] {
      for (const OwnedSample& sample : samples) writer.add(sample.view());
      writer.finish();
    });
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
    EXPECT_ANY_THROW(writer.finish()) << "there is room now, but a page is missing";
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  std::signal(SIGXFSZ, before);
}

int open_files_of(const std::filesystem::path& path) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the directory's own
    if (std::filesystem::read_symlink(entry, gone) == path) ++count;
  }
  return count;
}

TEST(Packed, IsOpenedOnceForAllThreads) {
  const TempDir dir;
  const Samples samples = uniform(200);
  write(dir / "a.athp", samples);
  const auto path = std::filesystem::canonical(dir / "a.athp");
  for (const PackedAccess access : {PackedAccess::map, PackedAccess::read}) {
    const PackedStore store(path, {true, access});
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        std::vector<std::byte> scratch;
        for (int round = 0; round < 20; ++round) {
          store.will_need(50, 1000);
          for (std::int64_t i = 0; i < 200; ++i) {
            expect_same(store.fetch(i, scratch), samples[static_cast<std::size_t>(i)], i);
          }
        }
      });
    }
    EXPECT_EQ(open_files_of(path), 1);
  }
  EXPECT_EQ(open_files_of(path), 0);
}

TEST(Packed, MappedSamplesLieInPlace) {
  const TempDir dir;
  write(dir / "a.athp", uniform(10));
  const PackedStore store(dir / "a.athp", {true, PackedAccess::map});
  EXPECT_TRUE(store.mapped());
  std::vector<std::byte> scratch;
  const StoredSample first = store.fetch(0, scratch), last = store.fetch(9, scratch);
  EXPECT_TRUE(scratch.empty());
  EXPECT_EQ(last.bytes.data() - first.bytes.data(), store.offset(9) - store.offset(0));
  EXPECT_EQ(std::bit_cast<std::uintptr_t>(last.bytes.data()) % 64, 0u);
  EXPECT_FALSE(PackedStore(dir / "a.athp", {true, PackedAccess::read}).mapped());
  store.will_need(-5, 3);
  store.will_need(9, 1 << 20);
  store.will_need(100, 1);
  expect_argument_error("[0, 10)", [&] { (void)store.fetch(10, scratch); });
  expect_argument_error("[0, 10)", [&] { (void)store.fetch(-1, scratch); });
}

}  // namespace
}  // namespace athanor
