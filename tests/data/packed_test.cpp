#include "data/formats/packed.h"

#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "data/formats/crc32c.h"
#include "data/formats/packed_writer.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/packed_samples.h"
#include "tests/support/samples.h"
#include "tests/support/temp_dir.h"

namespace athanor::packed_test {

using test::encoded_sample;
using test::expect_same;
using test::mixed;
using test::OwnedSample;
using test::raw_sample;
using test::read_file;
using test::Samples;
using test::small_pages;
using test::TempDir;
using test::uniform;
using test::write;
using test::write_file;

void expect_holds(const PackedStore& store, const Samples& samples) {
  ASSERT_EQ(store.size(), std::ssize(samples));
  std::vector<std::byte> scratch;
  for (std::int64_t i = store.size() - 1; i >= 0; --i) {
    expect_same(store.fetch(i, scratch), samples[static_cast<std::size_t>(i)], i);
  }
  EXPECT_TRUE(store.verify(2).empty());
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
    EXPECT_TRUE(test::names(store.where(i), {(dir / "a.athp").string(), std::to_string(store.offset(i))}));
  }
}

// The table of docs/reference/packed_file.md, number by number.
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

TEST(Packed, ANewFileUnderTheNameLeavesOpenOnesAlone) {
  const TempDir dir;
  write(dir / "a.athp", uniform(100));
  const PackedStore old(dir / "a.athp", {true, PackedAccess::map});
  write(dir / "a.athp", mixed());
  expect_holds(old, uniform(100));
  expect_holds(PackedStore(dir / "a.athp"), mixed());
}

TEST(Packed, TheWriterRejectsUnsupportedSamples) {
  const TempDir dir;
  const auto add = [&](const OwnedSample& sample, PackedWriterOptions options = small_pages()) {
    PackedWriter writer(dir / "a.athp", std::move(options));
    writer.add(raw_sample(1, 1, 1, 0, 1).view());
    writer.add(sample.view());
  };
  EXPECT_ERROR(ArgumentError, add(encoded_sample(3, -1, 1)), "packed file", "label", "sample 1", "-1");
  EXPECT_ERROR(ArgumentError, add(encoded_sample(3, std::int64_t{1} << 31, 1)), "packed file", "label",
               "sample 1", "2147483648");
  PackedWriterOptions two = small_pages();
  two.classes = 2;
  EXPECT_ERROR(ArgumentError, add(encoded_sample(3, 2, 1), two), "packed file", "label", "sample 1", "[0, 2)",
               "2");
  EXPECT_ERROR(ArgumentError, add({test::noise(5, 1), Codec::raw, 2, 3, 1, 0}), "packed file", "sample 1",
               "2x3x1", "5");
  EXPECT_ERROR(ArgumentError, add({{}, Codec::raw, 0, 3, 1, 0}), "packed file", "sample 1", "0x3x1", "0");
  const std::int64_t huge = 4294967295;
  EXPECT_ERROR(ArgumentError, add({test::noise(1, 1), Codec::raw, huge, huge, huge, 0}), "packed file",
               "sample 1", "4294967295x4294967295x4294967295", "1");
  EXPECT_ERROR(ArgumentError, add({test::noise(1, 1), Codec::jpeg, -1, 1, 1, 0}), "packed file", "image",
               "sample 1", "[0, 4294967295]", "-1x1x1");
  const auto open = [&](const std::function<void(PackedWriterOptions&)>& change) {
    PackedWriterOptions options = small_pages();
    change(options);
    PackedWriter writer(dir / "a.athp", options);
  };
  EXPECT_ERROR(ArgumentError, open([](auto& o) { o.page_bytes = 5000; }), "packed file", "page_bytes",
               "5000");
  EXPECT_ERROR(ArgumentError, open([](auto& o) { o.page_bytes = -4096; }), "packed file", "page_bytes",
               "-4096");
  EXPECT_ERROR(ArgumentError, open([](auto& o) { o.threads = -1; }), "packed file", "threads", "-1");
  EXPECT_ERROR(ArgumentError, open([](auto& o) { o.classes = -1; }), "packed file", "classes", "-1");
  const auto one_name_of_three = [](auto& o) {
    o.classes = 3;
    o.class_names = {"a"};
  };
  EXPECT_ERROR(ArgumentError, open(one_name_of_three), "packed file", "class names", "3", "1");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "writers that never finished left a file";
}

TEST(Packed, NothingRemainsWithoutFinish) {
  const TempDir dir;
  write_file(dir / "a.athp", "before");
  for (const int threads : {0, 3}) {
    PackedWriter writer(dir / "a.athp", small_pages(threads));
    for (const OwnedSample& sample : mixed()) writer.add(sample.view());
  }
  EXPECT_EQ(read_file(dir / "a.athp"), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_ERROR(IoError, PackedWriter(dir / "absent" / "a.athp"), "absent");
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
    const std::string message = test::message_of<IoError>([&] {
      for (const OwnedSample& sample : samples) writer.add(sample.view());
      writer.finish();
    });
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_TRUE(test::names(message, {std::strerror(EFBIG)}));
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
  write(dir / "encoded.athp", {encoded_sample(1000, 0, 1)});
  EXPECT_FALSE(PackedStore(dir / "encoded.athp").mapped()) << "a file that is cut while they are decoded";
  store.will_need(-5, 3);
  store.will_need(9, 1 << 20);
  store.will_need(100, 1);
  EXPECT_ERROR(ArgumentError, store.fetch(10, scratch), "[0, 10)", "10");
  EXPECT_ERROR(ArgumentError, store.fetch(-1, scratch), "[0, 10)", "-1");
}

}  // namespace athanor::packed_test
