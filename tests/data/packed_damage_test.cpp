// Packed files that are damaged, cut or contradict themselves.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "data/formats/crc32c.h"
#include "data/formats/detail/packed_layout.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/packed_samples.h"
#include "tests/support/temp_dir.h"

namespace athanor::packed_damage_test {

using test::expect_same;
using test::mixed;
using test::read_file;
using test::Samples;
using test::small_pages;
using test::TempDir;
using test::uniform;
using test::write;
using test::write_file;

/// The first number behind the file's name in a message: an offset.
std::int64_t offset_in(const std::string& message) {
  const std::string file = ".athp";
  const auto at = message.find_first_of("0123456789", message.find(file) + file.size());
  return message.find(file) == message.npos || at == message.npos ? -1 : std::stoll(message.substr(at));
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
      const std::string message = test::message_of<IoError>([&] { PackedStore store(dir / "b.athp"); });
      ASSERT_TRUE(test::names(message, {"b.athp"})) << "byte " << at;
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
      const std::string message = test::message_of<IoError>([&] { (void)store.fetch(i, scratch); });
      if (i == found[0].sample) {
        ASSERT_TRUE(test::names(message, {"b.athp", fmt::format("sample {}", i)}));
        ASSERT_EQ(offset_in(message), store.offset(i)) << message;
      } else {
        ASSERT_EQ(message, "");
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

TEST(Packed, VerifyReportsProgressAndCanBeStopped) {
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

TEST(Packed, AFileCutWhileItIsOpenIsAnError) {
  const TempDir dir;
  const Samples samples = uniform(100);
  for (const PackedAccess access : {PackedAccess::map, PackedAccess::read}) {
    write(dir / "a.athp", samples);
    const PackedStore store(dir / "a.athp", {true, access});
    std::vector<std::byte> scratch;
    expect_same(store.fetch(99, scratch), samples[99], 99);
    std::filesystem::resize_file(dir / "a.athp", 5000);
    const std::string message = test::message_of<IoError>([&] { (void)store.fetch(99, scratch); });
    const std::string at = access == PackedAccess::read ? std::to_string(store.offset(99)) : "5000";
    EXPECT_TRUE(test::names(message, {"a.athp", at}));
    EXPECT_THROW((void)store.verify(2), IoError);
  }
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
  // What the error names besides the file.
  using Values = std::vector<std::string>;
  const Values numbers{"32"};
  const std::size_t footer = file.size() - packed::kFooterBytes;
  const auto bytes = [&](int more) { return std::to_string(static_cast<std::int64_t>(file.size()) + more); };
  const std::vector<std::pair<Values, Change>> cases{
      {{"8", "1", "2", "3"}, [](auto& h) { h.version = 3; }},
      {numbers, [](auto& h) { h.version = 2; }},
      {numbers, [](auto& h) { h.field_bytes = 8; }},
      {{"8", "1", "2"}, [](auto& h) { h.byte_order = 0x04030201; }},
      {numbers, [](auto& h) { h.samples = kHuge; }},
      {numbers, [](auto& h) { h.samples = kMax / 24 + 2; }},
      {numbers, [](auto& h) { h.data_bytes = kMax - 4095; }},
      {numbers, [](auto& h) { h.data_bytes += 1; }},
      {numbers, [](auto& h) { h.name_bytes = kMax; }},
      {numbers,
       [](auto& h) {
         h.version = 2;
         h.field_bytes = kMax;
       }},
      {numbers, [](auto& h) { h.pages += 1; }},
      {numbers, [](auto& h) { h.page_bytes = 0; }},
      {numbers, [](auto& h) { h.page_bytes = 5000; }},
      {numbers, [](auto& h) { h.page_bytes = kHuge; }},
      {numbers, [](auto& h) { h.entry_bytes = 0; }},
      {numbers, [](auto& h) { h.entry_bytes = 41; }},
      {numbers, [](auto& h) { h.classes = kMax; }},
      {numbers, [](auto& h) { h.form.codec = 7; }},
      {numbers, [](auto& h) { h.form.codec = packed::kVaries; }},
      {{bytes(0), bytes(24)}, [](auto& h) { h.samples += 1; }},
      {{bytes(0), bytes(-24)}, [](auto& h) { h.samples -= 1; }},
      {{std::to_string(footer + 8)}, [](auto& h) { h.samples -= 1, h.name_bytes += 24; }},
      {{"sample 1", "1"}, [](auto& h) { h.classes = 1; }},
      {{"sample 0"}, [](auto& h) { h.form.height = 7; }},
      {{"sample 0"}, [](auto& h) { h.form.height = 0; }},
      {{"sample 0"},
       [](auto& h) {
         h.form = {0, 0xffffffff, 0xffffffff, 0xffffffff};
       }},
  };
  for (const auto& [wanted, change] : cases) {
    write_file(dir / "b.athp", with_header(file, change));
    const std::string message = test::message_of<IoError>([&] { PackedStore store(dir / "b.athp"); });
    EXPECT_TRUE(test::names(message, {"b.athp"}));
    EXPECT_TRUE(test::names(message, wanted));
  }
  write_file(dir / "b.athp", with_header(file, [](auto& h) { h.content_id = {}; }));
  const std::vector<Damage> found = PackedStore(dir / "b.athp").verify();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(test::names(found[0].what, {"content id"}));
}

TEST(Packed, RejectsOtherFiles) {
  const TempDir dir;
  for (const std::string& content : {std::string(),
                                     std::string("\x93"
                                                 "ATHP"),
                                     std::string(10'000, 'x')}) {
    write_file(dir / "b.athp", content);
    EXPECT_ERROR(IoError, PackedStore(dir / "b.athp"), "b.athp", "0", "packed file");
  }
  EXPECT_ERROR(IoError, PackedStore(dir / "absent.athp"), "absent.athp");
  EXPECT_ERROR(IoError, PackedStore(dir.path()), dir.path().string());
}

}  // namespace athanor::packed_damage_test
