#include "data/formats/lmdb.h"

#include <random>

#include "data/formats/crc32c.h"
#include "tests/support/stores.h"

namespace athanor::lmdb_test {

using namespace test;

std::string number(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
  return text;
}

/// A value of ours, written by hand.
std::string value_of(const OwnedSample& s) {
  const bool raw = s.codec == Codec::raw;
  std::string value = "ATH1" + number(static_cast<std::uint64_t>(s.codec), 4) +
                      number(static_cast<std::uint64_t>(s.label), 8);
  for (const std::int64_t side : {s.height, s.width, s.channels})
    value += number(raw ? static_cast<std::uint64_t>(side) : 0, 4);
  const std::string all = value + s.bytes;
  return value + number(crc32c(std::as_bytes(std::span(all))), 4) + s.bytes;
}

/// A data.mdb of pages of 512 bytes, put together by hand: two meta pages, and then those given.
struct Pages {
  std::uint64_t root = 2, entries = 1, depth = 1, page_size = 512, version = 1, main_flags = 0,
                transaction = 1;
  std::vector<std::string> pages = {};

  static std::string page(std::uint64_t index, int flags, std::string rest, std::size_t size = 512) {
    rest = number(index, 8) + number(0, 2) + number(static_cast<std::uint64_t>(flags), 2) + rest;
    rest.resize(size, '\0');
    return rest;
  }
  static std::string database(std::uint64_t pad, std::uint64_t flags, std::uint64_t depth,
                              std::uint64_t entries, std::uint64_t root) {
    return number(pad, 4) + number(flags, 2) + number(depth, 2) + number(0, 24) + number(entries, 8) +
           number(root, 8);
  }
  std::string meta(std::uint64_t index, std::uint64_t number_of, std::uint64_t at_root) const {
    return page(index, 0x08,
                number(0, 4) + number(0xbeefc0de, 4) + number(version, 4) + number(0, 16) +
                    database(page_size, 0, 0, 0, UINT64_MAX) +
                    database(0, main_flags, depth, entries, at_root) + number(9, 8) + number(number_of, 8));
  }
  /// A leaf with one node of each given data, from the page's end downwards.
  static std::string leaf(std::uint64_t index,
                          const std::vector<std::pair<std::string, std::uint64_t>>& data_and_size,
                          int node_flags) {
    std::string offsets, text = page(index, 0x02, "");
    std::size_t at = 512;
    for (const auto& [data, size] : data_and_size) {
      const std::string node = number(size, 4) + number(static_cast<std::uint64_t>(node_flags), 2) +
                               number(1, 2) + std::string{static_cast<char>(16 * index + offsets.size())} +
                               data;
      at -= (node.size() + 1) / 2 * 2;
      text.replace(at, node.size(), node);
      offsets += number(at, 2);
    }
    text.replace(12, 4, number(16 + offsets.size(), 2) + number(at, 2));
    text.replace(16, offsets.size(), offsets);
    return text;
  }
  static std::string branch(std::uint64_t index, const std::vector<std::uint64_t>& children) {
    std::string offsets, nodes;
    for (const std::uint64_t child : children) {
      offsets += number(400 + nodes.size(), 2);
      nodes += number(child, 6) + number(0, 2);
    }
    std::string text = page(index, 0x01, number(16 + offsets.size(), 2) + number(400, 2) + offsets);
    return text.replace(400, nodes.size(), nodes);
  }
  std::string file() const {
    std::string text = meta(0, 0, UINT64_MAX) + meta(1, transaction, root);
    for (const std::string& p : pages) text += p;
    return text;
  }
};

TEST(Lmdb, ReadsPagesPutTogetherByHand) {
  const TempDir dir;
  const OwnedSample a{"abcdef", Codec::raw, 1, 2, 3, 4}, b = encoded_sample(Codec::jpeg, 20, 1),
                                                         c = encoded_sample(Codec::png, 600, 2);
  const std::string va = value_of(a), vb = value_of(b), vc = value_of(c);
  Pages pages{.root = 4, .entries = 3, .depth = 2};
  pages.pages = {Pages::leaf(2, {{va, va.size()}, {vb, vb.size()}}, 0),
                 Pages::leaf(3, {{number(5, 8), vc.size()}}, 1), Pages::branch(4, {2, 3}),
                 Pages::page(5, 0x04, number(2, 4) + vc, 1024)};
  write_file(dir / "data.mdb", pages.file());
  for (const auto& path : {dir.path(), dir / "data.mdb"}) {
    const auto store = open_lmdb(path);
    EXPECT_EQ(store->spec(), (ImageSpec{0, 0, 0, 5}));
    expect_same(*store, {a, b, c});
  }
  EXPECT_ERROR(IoError, open_lmdb(dir.path(), {.classes = 4}), "data.mdb", "label", "[0, 4)", "4");
}

TEST(Lmdb, HostilePagesAreOneLineNamingFileAndOffset) {
  const TempDir dir;
  const std::string good = value_of({"abcdef", Codec::raw, 1, 2, 3, 4});
  const auto one = [&](const std::string& value) {
    Pages pages;
    pages.pages = {Pages::leaf(2, {{value, value.size()}}, 0)};
    return pages;
  };
  const auto with = [&](auto change) {
    Pages pages = one(good);
    change(pages);
    return pages.file();
  };
  std::string bad_magic = good, bad_codec = good, bad_shape = good, bad_crc = good, bad_label = good;
  bad_magic[0] = 'B', bad_codec[4] = 4, bad_shape[16] = 2, bad_crc[32] = 'x', bad_label[15] = '\x80';
  for (const BadFile& bad : std::vector<BadFile>{
           {"", 0, {"0", "16"}},
           {std::string(100, 'x'), 16, {"136", "84"}},
           {std::string(4096, 'x'), 0, {"LMDB"}},
           {with([](Pages& p) { p.version = 999; }), 0, {"LMDB"}},
           {with([](Pages& p) { p.page_size = 500; }), 40, {"[256, 32768]", "500"}},
           {with([](Pages& p) { p.page_size = 1 << 20; }), 40, {"[256, 32768]", "1048576"}},
           {with([](Pages& p) { p.main_flags = 4; }), 604, {"0x0004"}},
           {with([](Pages& p) { p.entries = 0; }), 632, {}},
           {with([](Pages& p) { p.entries = 2; }), 632, {"2", "1"}},
           {with([](Pages& p) { p.root = 3; }), 640, {"[2, 3)", "3"}},
           {with([](Pages& p) { p.root = UINT64_MAX; }), 640, {"[2, 3)", "18446744073709551615"}},
           {with([](Pages& p) { p.root = 1; }), 640, {"[2, 3)", "1"}},
           {with([](Pages& p) { p.depth = 2; }), 1024, {"depth", "2"}},
           {with([](Pages& p) { p.depth = 60000; }), 606, {"depth", "[1, 32]", "60000"}},
           {with([](Pages& p) { p.pages[0] = Pages::branch(2, {2}); }), 1024, {"depth", "1"}},
           {with([](Pages& p) { p.depth = 5, p.pages[0] = Pages::branch(2, {2}); }), 1424, {}},
           {with([](Pages& p) { p.pages[0] = Pages::page(3, 2, ""); }), 1024, {"2", "0x03", "3", "0x02"}},
           {with([](Pages& p) { p.pages[0] = Pages::page(2, 2, number(999, 2)); }),
            1036,
            {"[16, 512]", "999"}},
           {with([](Pages& p) {
              p.pages[0] = Pages::page(2, 2, number(18, 2) + number(0, 2) + number(510, 2));
            }),
            1040,
            {"510"}},
           {with([&](Pages& p) {
              p.pages[0] = Pages::leaf(2, {{good, 600}}, 0);
            }),
            1488,
            {"600", "1497"}},
           {with([&](Pages& p) {
              p.pages[0] = Pages::leaf(2, {{good, good.size()}}, 2);
            }),
            1492,
            {}},
           {with([&](Pages& p) {
              p.pages[0] = Pages::leaf(2, {{number(2, 8), 600}}, 1);
            }),
            1024,
            {"2", "0x04", "0x02"}},
           {with([&](Pages& p) {
              p.pages[0] = Pages::leaf(2, {{number(99, 8), 600}}, 1);
            }),
            1527,
            {"[2, 3)", "99"}},
           {with([&](Pages& p) {
              p.pages[0] = Pages::leaf(2, {{number(3, 8), 0xffffffff}}, 1);
              p.pages.push_back(Pages::page(3, 4, number(1, 4)));
            }),
            1552,
            {"4294967295", "496"}},
           {one("ATH1").file(), 1531, {"32", "4"}},
           {one(bad_magic).file(), 1497, {"ATH1"}},
           {one(bad_codec).file(), 1501, {"codec", "[0, 3]", "4"}},
           {one(bad_shape).file(), 1513, {"6", "2x2x3"}},
           {one(bad_crc).file(), 1497, {"CRC", "0x516523aa", "0x1e5f6092"}},
           {one(bad_label).file(), 1505, {"label", "[0, 2147483648)", "-9223372036854775804"}},
       }) {
    write_file(dir / "data.mdb", bad.content);
    expect_named(message_of<IoError>([&] { read_all(*open_lmdb(dir.path())); }), "data.mdb", bad);
  }
  write_file(dir / "data.mdb", one(good).file());
  EXPECT_NO_THROW(read_all(*open_lmdb(dir.path())));
  expect_every_cut_fails(dir / "data.mdb", [&] { read_all(*open_lmdb(dir.path())); });
}

#ifdef ATHANOR_TEST_LMDB
std::vector<OwnedSample> mixed_samples(std::size_t count) {
  std::vector<OwnedSample> samples = raw_samples(3, 5, 4, 3, 3);
  while (samples.size() < count) {
    const auto i = static_cast<std::int64_t>(samples.size());
    samples.push_back(
        encoded_sample(i % 2 ? Codec::jpeg : Codec::png, static_cast<std::size_t>(i * 37 % 9001), i % 1000));
  }
  samples.resize(count);
  return samples;
}

TEST(Lmdb, ReadsWhatItWrote) {
  for (const std::size_t count : {1u, 4u, 700u}) {  // a tree of more than one level
    const TempDir dir;
    const auto samples = mixed_samples(count);
    for (const auto& path : {dir / "env", dir / "file.mdb"}) {
      write_all(create_lmdb(path), samples);
      expect_same(*open_lmdb(path), samples);
    }
    EXPECT_TRUE(std::filesystem::exists(dir / "env" / "data.mdb"));
    EXPECT_EQ(std::distance(std::filesystem::recursive_directory_iterator(dir.path()), {}), 3)
        << "nothing else is left";
  }
  const TempDir dir;
  write_all(create_lmdb(dir / "env"), raw_samples(5, 3, 2, 1, 4));
  EXPECT_EQ(open_lmdb(dir / "env")->spec(), (ImageSpec{3, 2, 1, 4}));
}

TEST(Lmdb, GrowsItsMapAsItWrites) {
  const TempDir dir;
  std::vector<OwnedSample> samples(
      24, encoded_sample(Codec::jpeg, 3'000'000, 1));  // 72 MB; it starts with 64 MiB
  write_all(create_lmdb(dir / "env"), samples);
  expect_same(*open_lmdb(dir / "env"), samples);
}

TEST(Lmdb, RejectsUnsupportedSamplesAndLeavesNothing) {
  const TempDir dir;
  {
    const auto writer = create_lmdb(dir / "env");
    EXPECT_THROW(writer->finish(), ArgumentError);
    writer->add(encoded_sample(Codec::jpeg, 100, 1).view());
    EXPECT_THROW(writer->add(encoded_sample(Codec::jpeg, 100, -1).view()), ArgumentError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_ERROR(IoError, create_lmdb(dir / "no" / "such" / "folder"), "folder");
}

TEST(Lmdb, NoFlippedByteOfAValueIsAccepted) {
  const TempDir dir;
  write_all(create_lmdb(dir / "env"), mixed_samples(30));
  const auto path = dir / "env" / "data.mdb";
  const std::string whole = read_file(path);
  const std::uint64_t wanted = read_all(*open_lmdb(path));
  std::mt19937_64 random(7);
  int found = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = whole;
    const std::size_t at = random() % whole.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + random() % 255));
    replace_file(path, damaged);
    std::uint64_t got = wanted;
    const std::string message = message_of<IoError>([&] { got = read_all(*open_lmdb(path)); });
    found += !message.empty();
    ASSERT_TRUE(message.empty() || names_place(message, "data.mdb")) << message;
    ASSERT_EQ(got, wanted) << "byte " << at
                           << ": damage in unused or unchecked bytes must not change a sample";
  }
  EXPECT_GT(found, 1500);
}

#else
TEST(Lmdb, SaysThatWritingNeedsLiblmdb) {
  const TempDir dir;
  EXPECT_ERROR(IoError, create_lmdb(dir / "env"), "env", "liblmdb");
}
#endif

}  // namespace athanor::lmdb_test
